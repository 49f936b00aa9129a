package dataset

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"
)

// grossOutlier is the distance from the median, in robust standard deviations, from which on a target
// is hardly of the same kind as the others: of normal ones not one in 10²² lies so far out.
const grossOutlier = 10

// Hints returns what somebody should know before fitting Gaussian noise to the targets: one
// sentence each, with what to do.
func (d *Dataset) Hints() []string {
	y := make([]float64, len(d.Y))
	for i, z := range d.Y {
		y[i] = d.YScale.Undo(z)
	}
	sorted := slices.Clone(y)
	slices.Sort(sorted)
	var hints []string
	add := func(format string, args ...any) { hints = append(hints, fmt.Sprintf(format, args...)) }
	whole := !slices.ContainsFunc(y, func(v float64) bool { return math.Abs(v-math.Round(v)) > 1e-9*max(1, math.Abs(v)) })
	mean, sd := stat.MeanStdDev(y, nil)
	switch low, high := sorted[0], sorted[len(sorted)-1]; {
	case !slices.ContainsFunc(y, func(v float64) bool { return !near(v, low) && !near(v, high) }):
		add("the target %s has two values, %.4g and %.4g: this looks like classes, for which Gaussian noise is wrong, and predictions will lie between and beyond them; "+
			"write them as 0 and 1 and say likelihood: bernoulli under model:", yamlName(d.Target), low, high)
	case whole && low > -0.5 && mean < 2*sd:
		add("the target %s holds only whole numbers from %.4g on, many of them small: this looks like counts, for which Gaussian noise is wrong, and predictions may be negative; "+
			"learn log(1+%s) or its square root, or say likelihood: poisson, or negative-binomial where they vary more, or ordinal if they are grades, under model:", yamlName(d.Target), math.Round(low), yamlName(d.Target))
	case whole && grades(sorted):
		add("the target %s holds few whole numbers only, from %.4g to %.4g: if they are classes in order, such as grades or ratings, Gaussian noise is wrong: say likelihood: ordinal under model:", yamlName(d.Target), low, high)
	}
	hints = append(hints, d.copies()...)
	if text := d.outliers(y, sorted); text != "" {
		hints = append(hints, text)
	}
	return hints
}

// mostGrades bounds the values of a target that looks like grades.
const mostGrades = 10

// grades reports whether sorted targets have few values.
func grades(sorted []float64) bool {
	values := 1
	for i := 1; i < len(sorted) && values <= mostGrades; i++ {
		if !near(sorted[i], sorted[i-1]) {
			values++
		}
	}
	return values <= mostGrades && values < len(sorted)/mostGrades
}

// copied is the correlation with the target from which on an input hardly has anything else in it.
const copied = 0.999

// copies names the inputs that are nearly the target.
func (d *Dataset) copies() []string {
	var hints []string
	x := make([]float64, d.N())
	for k, name := range d.InputNames {
		if d.LevelsOf(k) != nil {
			continue
		}
		for i := range x {
			x[i] = d.X.Row(i)[k]
		}
		if r := stat.Correlation(x, d.Y, nil); math.Abs(r) > copied {
			hints = append(hints, fmt.Sprintf("the input %s has a correlation of %.6g with the target: if it is known only after the target is, or computed from it, leave it out with exclude: [%s]",
				yamlName(name), r, yamlName(name)))
		}
	}
	return hints
}

// near reports whether two values are equal but for the rounding of standardisation.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b), 1e-300) }

// outliers names the rows with gross outliers among the targets y.
func (d *Dataset) outliers(y, sorted []float64) string {
	median := stat.Quantile(0.5, stat.Empirical, sorted, nil)
	away := make([]float64, len(y))
	for i, v := range y {
		away[i] = math.Abs(v - median)
	}
	slices.Sort(away)
	robust := 1.4826 * stat.Quantile(0.5, stat.Empirical, away, nil)
	if robust == 0 { // more than half of the targets are equal
		return ""
	}
	const most = 5
	var rows []string
	count := 0
	held := 0
	for i, v := range y {
		for held < len(d.HoldoutRows) && d.HoldoutRows[held] <= i+held {
			held++
		}
		if math.Abs(v-median) <= grossOutlier*robust {
			continue
		}
		if count++; count <= most {
			rows = append(rows, fmt.Sprintf("row %d (%.4g)", d.Number(i+held), d.Transform.Inverse(v)))
		}
	}
	if count == 0 {
		return ""
	}
	if count > most {
		rows = append(rows, "…")
	}
	return fmt.Sprintf("%d of %d targets lie more than %d robust standard deviations from the median, %.4g: %s; noise is taken to be Gaussian, so that a few such rows "+
		"decide the result and make it slow: correct them, leave them out, learn the target's logarithm, or say likelihood: student-t under model:", count, len(y), grossOutlier, d.Transform.Inverse(median), strings.Join(rows, ", "))
}
