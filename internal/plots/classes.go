package plots

import (
	"cmp"
	"io"
	"slices"

	"gonum.org/v1/plot/vg"
)

// classBins is how many groups of rows a class's predictions are in at most, and binRows how many rows a group has, but that there are two.
const (
	classBins = 10
	binRows   = 5
)

// Classes draws how predicted probabilities of classes, rows × classes, agree with the classes that the rows are of. For each class rows are put
// together whose probabilities of it are near each other, as many in each group: the share of rows that are of the class against the mean
// probability, on the diagonal if predictions are right. And how large a share of likeliest classes is right where the rows that are
// least sure are rejected, against the share of these.
func Classes(w io.Writer, names []string, p [][]float64, class []int, opts ...Option) error {
	f := newFigure("Calibration of classes", "How often rows are of a class against its predicted probability, where on the dashed line is best; and how many likeliest classes are right if the least sure rows are rejected", opts)
	f.height = calibrationHeight
	panel := newPlot("", "predicted probability of the class", "share of rows of the class")
	panel.X.Min, panel.X.Max, panel.Y.Min, panel.Y.Max = 0, 1, 0, 1
	if err := f.line(panel, []float64{0, 1}, []float64{0, 1}, stroke{name: "expected", colour: muted, width: vg.Points(0.8), dashed: true}); err != nil {
		return err
	}
	for _, c := range Some(len(names)) {
		x, y := reliability(c, p, class)
		if err := f.line(panel, x, y, stroke{name: names[c], colour: colour(c), width: vg.Points(1.4)}); err != nil {
			return err
		}
	}
	f.add(panel)

	panel = newPlot("", "share of rows rejected, the least sure first", "share of the others that are right")
	panel.X.Min, panel.X.Max, panel.Y.Max = 0, 1, 1
	x, y := rejection(p, class)
	if err := f.line(panel, x, y, stroke{colour: colour(0), width: vg.Points(1.4)}); err != nil {
		return err
	}
	f.add(panel)
	return f.write(w)
}

// reliability returns the mean probability of a class in each group of rows, and the share of them that are of it.
func reliability(c int, p [][]float64, class []int) (x, y []float64) {
	rows := make([]int, len(p))
	for i := range rows {
		rows[i] = i
	}
	slices.SortStableFunc(rows, func(a, b int) int { return cmp.Compare(p[a][c], p[b][c]) })
	bins := min(len(rows), max(2, min(classBins, len(rows)/binRows))) // a line has two points
	for b := range bins {
		group := rows[b*len(rows)/bins : (b+1)*len(rows)/bins]
		var mean, share float64
		for _, i := range group {
			mean += p[i][c] / float64(len(group))
			if class[i] == c {
				share += 1 / float64(len(group))
			}
		}
		x, y = append(x, mean), append(y, share)
	}
	return x, y
}

// rejection returns the shares of rows rejected and the shares of the others that are right.
func rejection(p [][]float64, class []int) (x, y []float64) {
	type guess struct {
		sure  float64
		right bool
	}
	var guesses []guess
	for i, row := range p {
		best := slices.Max(row)
		guesses = append(guesses, guess{best, row[class[i]] == best})
	}
	slices.SortStableFunc(guesses, func(a, b guess) int { return cmp.Compare(b.sure, a.sure) }) // the surest first
	n, right := float64(len(guesses)), 0.0
	for k, g := range guesses {
		if g.right {
			right++
		}
		x, y = append(x, 1-float64(k+1)/n), append(y, right/float64(k+1))
	}
	return x, y
}
