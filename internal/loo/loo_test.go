package loo

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// normal is the density of y under N(mu, v), and the probability of less.
func normal(y, mu, v float64) (logp, cdf float64) {
	return -0.5*(y-mu)*(y-mu)/v - 0.5*math.Log(2*math.Pi*v), 0.5 * math.Erfc((mu-y)/math.Sqrt(2*v))
}

// conjugate are targets of N(θ,1) with θ ~ N(0,4), and draws of the posterior of θ.
func conjugate(r *rand.Rand, y []float64, draws int) Draws {
	v := 1 / (float64(len(y)) + 0.25)
	var d Draws
	for range draws {
		theta := v*floats.Sum(y) + math.Sqrt(v)*r.NormFloat64()
		lp, cdf, mean, sd := make([]float64, len(y)), make([]float64, len(y)), make([]float64, len(y)), make([]float64, len(y))
		for i := range y {
			lp[i], cdf[i] = normal(y[i], theta, 1)
			mean[i], sd[i] = theta, 1
		}
		d.LogDensity, d.CDF, d.Mean, d.SD = append(d.LogDensity, lp), append(d.CDF, cdf), append(d.Mean, mean), append(d.SD, sd)
	}
	return d
}

func targets(r *rand.Rand, n int) (y []float64, numbers []int) {
	for i := range n {
		y, numbers = append(y, 1+r.NormFloat64()), append(numbers, i+1)
	}
	return y, numbers
}

// Against the closed form of a conjugate model: everything within 0.02 at 10,000 draws, where
// four standard errors are at most 0.02; seeds are fixed.
func TestAgainstClosedForm(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	y, numbers := targets(r, 25)
	got := New(conjugate(r, y, 10000), 4, numbers, y, 25)
	var elpd, lpd float64
	for i, row := range got.Rows {
		v := 1 / (24 + 0.25)
		mu := v * (floats.Sum(y) - y[i])
		want, pit := normal(y[i], mu, 1+v)
		elpd += want
		vv := 1 / (25 + 0.25)
		seen, _ := normal(y[i], vv*floats.Sum(y), 1+vv)
		lpd += seen
		for what, pair := range map[string][2]float64{"elpd": {row.ELPD, want}, "lpd": {row.LPD, seen}, "pit": {row.PIT, pit}, "mean": {row.Mean, mu}, "sd": {row.SD, math.Sqrt(1 + v)}} {
			if math.Abs(pair[0]-pair[1]) > 0.02 {
				t.Errorf("row %d: %s %g, want %g", i, what, pair[0], pair[1])
			}
		}
	}
	if s := got.ELPD(); math.Abs(s.Value-elpd) > 4*got.MCSE || s.Sampling != 0 {
		t.Errorf("elpd %+v ± %g, want %g", s, got.MCSE, elpd)
	}
	if p := got.P(); math.Abs(p.Value-(lpd-elpd)) > 0.05 || p.Value < 0.5 || p.Value > 1.5 {
		t.Errorf("p_loo %+v, want %g", p, lpd-elpd)
	}
	if got.Doubtful() != 0 {
		t.Errorf("%d rows are doubtful", got.Doubtful())
	}
}

// The stated Monte Carlo error is the spread over repetitions. Of 200 the sd is known to 5 %:
// 25 % is five of these.
func TestMCSEIsTheSpread(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	y, numbers := targets(r, 20)
	var values, stated []float64
	for range 200 {
		got := New(conjugate(r, y, 100), 2, numbers, y, 20)
		values, stated = append(values, got.ELPD().Value), append(stated, got.MCSE)
	}
	if ratio := stat.Mean(stated, nil) / stat.StdDev(values, nil); math.Abs(ratio-1) > 0.25 {
		t.Errorf("the stated error is %.2f times the spread", ratio)
	}
}

// Estimates from samples of rows are unbiased, and their stated errors are their spread:
// 2,000 samples, the mean within five of its standard errors, the spread within 8 %, which is five of its own.
func TestSamplesOfRows(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const n, m = 100, 30
	x := make([]float64, n)
	for i := range x {
		x[i] = -1 - r.ExpFloat64()
	}
	var values, square []float64
	for range 2000 {
		some := make([]float64, m)
		for i, row := range r.Perm(n)[:m] {
			some[i] = x[row]
		}
		s := sum(some, n, nil)
		values, square = append(values, s.Value), append(square, s.Sampling*s.Sampling)
	}
	sd := stat.StdDev(values, nil)
	if off := stat.Mean(values, nil) - floats.Sum(x); math.Abs(off) > 5*sd/math.Sqrt(2000) {
		t.Errorf("the estimate is off by %g", off)
	}
	if ratio := math.Sqrt(stat.Mean(square, nil)) / sd; math.Abs(ratio-1) > 0.08 {
		t.Errorf("the stated error is %.2f times the spread", ratio)
	}
	if all := sum(x, n, nil); all.Sampling != 0 || math.Abs(all.Value-floats.Sum(x)) > 1e-9 || math.Abs(all.SE-math.Sqrt(n*stat.Variance(x, nil))) > 1e-9 {
		t.Errorf("%+v", all)
	}
}

// result makes a result of given log densities.
func result(elpd ...float64) *Result {
	r := &Result{Of: len(elpd), Draws: 100}
	for i, x := range elpd {
		r.Rows = append(r.Rows, Row{Number: i + 1, Target: float64(i), ELPD: x, LPD: x})
	}
	return r
}

func TestCompare(t *testing.T) {
	a, b := result(-1, -2, -3, -4), result(-1.5, -1, -2, -3.5)
	ranks, err := Compare([]*Result{a, b})
	if err != nil {
		t.Fatal(err)
	}
	// Differences of a from b, which is better: 0.5, −1, −1, −0.5: sum −2, variance 0.5, √(4·0.5).
	if ranks[0].Model != 1 || ranks[1].Model != 0 || ranks[0].ELPD.Value != -8 || ranks[1].ELPD.Value != -10 || ranks[0].Diff != (Sum{}) {
		t.Errorf("%+v", ranks)
	}
	if d := ranks[1].Diff; math.Abs(d.Value+2) > 1e-12 || math.Abs(d.SE-math.Sqrt(2)) > 1e-12 || d.Sampling != 0 {
		t.Errorf("difference %+v", d)
	}
	// The weights of two models by search.
	best, at := math.Inf(-1), 0.0
	for w := 0.0; w <= 1; w += 1e-4 {
		var s float64
		for i := range a.Rows {
			s += math.Log(w*math.Exp(a.Rows[i].ELPD) + (1-w)*math.Exp(b.Rows[i].ELPD))
		}
		if s > best {
			best, at = s, w
		}
	}
	if math.Abs(ranks[1].Weight-at) > 2e-4 || math.Abs(ranks[0].Weight+ranks[1].Weight-1) > 1e-9 {
		t.Errorf("weights %g and %g, by search %g", ranks[1].Weight, ranks[0].Weight, at)
	}
}

func TestCompareWantsTheSameRows(t *testing.T) {
	a := result(-1, -2, -3)
	fewer := result(-1, -2)
	other := result(-1, -2, -3)
	other.Rows[1].Number = 7
	units := result(-1, -2, -3)
	units.Rows[2].Target *= 1.01
	for what, b := range map[string]*Result{"rows": fewer, "row 2": other, "that of row 3": units} {
		if _, err := Compare([]*Result{a, b}); err == nil {
			t.Errorf("%s: compared", what)
		}
	}
	near := result(-1, -2, -3)
	near.Rows[2].Target *= 1 + 1e-15
	if _, err := Compare([]*Result{a, near}); err != nil {
		t.Error(err)
	}
}

// The standard error of rows in units is the spread of sums over units that are drawn anew, with rows
// of one that depend on one another: 1,000 repetitions tell it to 2.3 %, the mean of the stated
// squares is as good; 12 % is four of both. That of units of one row is that of rows.
func TestUnits(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const groups, size = 40, 5
	var values, square, rows []float64
	for range 1000 {
		var x []float64
		var units []int
		for g := range groups {
			common := r.NormFloat64()
			for range size {
				x, units = append(x, common+0.5*r.NormFloat64()), append(units, 10*g)
			}
		}
		s := sum(x, len(x), units)
		values, square = append(values, s.Value), append(square, s.SE*s.SE)
		alone := sum(x, len(x), nil)
		rows = append(rows, alone.SE*alone.SE)
	}
	sd := stat.StdDev(values, nil)
	if ratio := math.Sqrt(stat.Mean(square, nil)) / sd; math.Abs(ratio-1) > 0.12 {
		t.Errorf("the stated error is %.3f times the spread", ratio)
	}
	if ratio := math.Sqrt(stat.Mean(rows, nil)) / sd; ratio > 0.6 { // what would be stated without units
		t.Errorf("the error between rows is %.3f times the spread: this test tells nothing", ratio)
	}
	x, each := []float64{1, 4, 2, 8}, []int{5, 1, 0, 9}
	if a, b := sum(x, 4, nil), sum(x, 4, each); math.Abs(a.SE-b.SE) > 1e-12 || a.Value != b.Value {
		t.Errorf("%+v of rows, %+v of units of one row", a, b)
	}
}

// folded makes a result of K-fold cross-validation of given log densities.
func folded(folds []int, units []int, elpd ...float64) *Result {
	var rows []Row
	for i, x := range elpd {
		rows = append(rows, Row{Number: i + 1, Target: float64(i), ELPD: x, Fold: folds[i]})
	}
	return KFold(rows, units)
}

func TestCompareFolds(t *testing.T) {
	cut := []int{1, 1, 2, 2}
	a, b := folded(cut, cut, -1, -2, -3, -4), folded(cut, cut, -1.5, -1, -2, -3.5)
	ranks, err := Compare([]*Result{a, b})
	if err != nil {
		t.Fatal(err)
	}
	// Differences of a from b: 0.5, −1, −1, −0.5, less their mean −0.5: 1, −0.5, −0.5, 0; sums of
	// units 0.5 and −0.5: √(2/1·0.5) = 1.
	if d := ranks[1].Diff; ranks[0].Model != 1 || math.Abs(d.Value+2) > 1e-12 || math.Abs(d.SE-1) > 1e-12 {
		t.Errorf("%+v", ranks)
	}
	for text, other := range map[string]*Result{
		"row 2 is in fold 1 of the one and in fold 2": folded([]int{1, 2, 1, 2}, cut, -1, -2, -3, -4),
		"in fold 0 of the other":                      result(-1, -2, -3, -4),
		"belong together in the one":                  folded(cut, nil, -1, -2, -3, -4),
		"learnt from 4 and 3 rows":                    folded(cut, cut[:3], -1, -2, -3),
	} {
		if _, err := Compare([]*Result{a, other}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
