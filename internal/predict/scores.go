package predict

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
)

// Levels are those of the central intervals whose coverage is told.
var Levels = []float64{0.5, 0.9, 0.95}

// Scores are how well rows were predicted whose targets are known.
type Scores struct {
	Rows     int          `json:"rows"`
	RMSE     float64      `json:"rmse"` // of the means, in the units of the target
	MLPD     float64      `json:"mlpd"` // mean log predictive density; MNLP is its negative
	CRPS     float64      `json:"crps"` // mean, in the units of the target; of classes in order the ranked probability score
	Coverage []Coverage   `json:"coverage"`
	Classes  *ClassScores `json:"classes,omitempty"` // where targets are classes 0 and 1
	Order    *OrderScores `json:"order,omitempty"`   // where targets are classes in order
	// Unordered are those of classes without an order, which have no RMSE and no coverage, and whose CRPS is the Brier score.
	Unordered *UnorderedScores `json:"unordered,omitempty"`
	Quantile  *LevelScore      `json:"quantile,omitempty"` // where a quantile was learnt
}

// LevelScore says how well the quantile of a level was predicted: the share of targets up to it is to be the level.
type LevelScore struct {
	Level float64 `json:"level"`
	Below float64 `json:"below"`
}

// Coverage is the share of targets within the central interval of a level.
type Coverage struct {
	Level  float64 `json:"level"`
	Within float64 `json:"within"`
}

// Score returns the scores of the rows whose targets are known, under a likelihood. It panics if there
// are none.
func Score(all []Row, l likelihood.Likelihood) *Scores {
	var rows []Row
	for _, r := range all {
		if r.known() {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		panic("predict: scores of no rows")
	}
	n := float64(len(rows))
	s := &Scores{Rows: len(rows)}
	if likelihood.OfCategories(l) {
		for _, r := range rows {
			s.MLPD += r.LogDensity / n
		}
		of := scoreOrder(rows)
		s.Unordered, s.CRPS = &UnorderedScores{of.Error, of.Brier}, of.Brier
		return s
	}
	for _, r := range rows {
		s.RMSE += (r.Mean - r.Target) * (r.Mean - r.Target) / n
		s.MLPD += r.LogDensity / n
		s.CRPS += r.CRPS / n
	}
	s.RMSE = math.Sqrt(s.RMSE)
	share := func(in func(r Row) bool) float64 {
		count := 0
		for _, r := range rows {
			if in(r) {
				count++
			}
		}
		return float64(count) / n
	}
	for _, level := range Levels {
		s.Coverage = append(s.Coverage, Coverage{level, share(func(r Row) bool { return within(r, level, likelihood.OfCounts(l) || likelihood.OfOrder(l)) })})
	}
	if likelihood.OfClasses(l) {
		s.Classes = scoreClasses(rows)
	}
	if likelihood.OfOrder(l) {
		s.Order = scoreOrder(rows)
	}
	if q, ok := l.(likelihood.Quantile); ok {
		s.Quantile = &LevelScore{q.Level, share(func(r Row) bool { return r.PIT <= q.Level })}
	}
	return s
}

// within reports whether a target lies between the quantiles that bound the central interval of a level. A
// count, or a class in order, has the probability of less and of itself, PIT being their sum.
func within(r Row, level float64, count bool) bool {
	if !count {
		return math.Abs(2*r.PIT-1) <= level
	}
	const rounding = 1e-9
	less := r.PIT - math.Exp(r.LogDensity)
	return r.PIT >= (1-level)/2-rounding && less < (1+level)/2+rounding
}

// WriteText writes the scores as a table of one line.
func (s *Scores) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if c := s.Classes; c != nil {
		auc := "-"
		if c.AUC != nil {
			auc = fmt.Sprintf("%.4g", *c.AUC)
		}
		fmt.Fprintf(tw, "rows\terror\tMLPD\tBrier\tAUC\t\n%d\t%.4g\t%.4g\t%.4g\t%s\t\n", s.Rows, c.Error, s.MLPD, c.Brier, auc)
		return tw.Flush()
	}
	if u := s.Unordered; u != nil {
		fmt.Fprintf(tw, "rows\terror\tMLPD\tBrier\t\n%d\t%.4g\t%.4g\t%.4g\t\n", s.Rows, u.Error, s.MLPD, u.Brier)
		return tw.Flush()
	}
	if o := s.Order; o != nil {
		fmt.Fprintf(tw, "rows\terror\tMLPD\tRPS\tBrier\tclasses off\t\n%d\t%.4g\t%.4g\t%.4g\t%.4g\t%.4g\t\n", s.Rows, o.Error, s.MLPD, s.CRPS, o.Brier, o.Off)
		return tw.Flush()
	}
	fmt.Fprint(tw, "rows\tRMSE\tMLPD\tCRPS\t")
	for _, c := range s.Coverage {
		fmt.Fprintf(tw, "in %g %%\t", 100*c.Level)
	}
	if s.Quantile != nil {
		fmt.Fprintf(tw, "below the %g quantile\t", s.Quantile.Level)
	}
	fmt.Fprintf(tw, "\n%d\t%.4g\t%.4g\t%.4g\t", s.Rows, s.RMSE, s.MLPD, s.CRPS)
	for _, c := range s.Coverage {
		fmt.Fprintf(tw, "%.1f %%\t", 100*c.Within)
	}
	if s.Quantile != nil {
		fmt.Fprintf(tw, "%.1f %%\t", 100*s.Quantile.Below)
	}
	fmt.Fprintln(tw)
	return tw.Flush()
}
