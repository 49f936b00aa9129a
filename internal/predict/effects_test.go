package predict

import (
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// An effect is the average over rows of a joint distribution that is computed densely, row by row.
func TestEffectsAreAverages(t *testing.T) {
	sum, err := kernel.Parse("a*rbf(1:u)*matern12(2:v)+b*matern52(1-3:w)", 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*kernel.Covariance{sum, kernel.Single(kernel.Matern32, 3, true)} {
		c, _ := exampleOf(f, 120, 1, 3)
		info := &dataset.Info{InputNames: []string{"a", "b", "c"}, XScale: []dataset.Scale{{Mean: 1, SD: 2}, {Mean: 0, SD: 3}, {Mean: -5, SD: 0.5}}, YScale: dataset.Scale{Mean: 100, SD: 10}}
		r := EffectsRequest{Inputs: []int{2, 0}, Grid: [][]float64{{-5, 1}, {-4.2, 3}, {-6, -2.5}}, Rows: Averaged(120, 35), Probs: []float64{0.1, 0.9}}
		p, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		got, stats, err := p.Effects(t.Context(), info, r, Options{Tolerance: 1e-6})
		if err != nil {
			t.Fatal(err)
		}
		if stats.Rows != 35 || stats.Draws != 3 || stats.Solves != 9 || stats.Unconverged > 0 {
			t.Errorf("%+v", stats)
		}
		for i, at := range r.Grid {
			x := slices.Clone(p.Problem.Inputs.Select(r.Rows).Row(0)[:0])
			for _, row := range r.Rows {
				point := slices.Clone(p.Problem.Inputs.Row(row))
				point[2], point[0] = (at[0]+5)/0.5, (at[1]-1)/2
				x = append(x, point...)
			}
			mean, cov := denseMixture(t, c, kernel.NewInputs(35, 3, x), false)
			weights := mat.NewVecDense(35, nil)
			for k := range 35 {
				weights.SetVec(k, 1.0/35)
			}
			wantMean, wantSD := 100+10*floats.Sum(mean)/35, 10*math.Sqrt(mat.Inner(weights, cov, weights))
			if e := got[i]; math.Abs(e.Mean-wantMean) > 1e-5 || math.Abs(e.SD/wantSD-1) > 1e-5 || !(e.Quantiles[0] < e.Mean && e.Mean < e.Quantiles[1]) || !slices.Equal(e.At, at) {
				t.Errorf("%v: effect %+v, want mean %g, sd %g", f, e, wantMean, wantSD)
			}
		}
		c.Budget = parallel.NewBudget(3)
		if p, err = New(c); err != nil {
			t.Fatal(err)
		}
		r.Grid = r.Grid[1:]
		if alone, _, err := p.Effects(t.Context(), info, r, Options{Tolerance: 1e-6}); err != nil || alone[0].Mean != got[1].Mean || alone[1].SD != got[2].SD {
			t.Errorf("%v: alone, values have other effects: %v, %v", f, alone, err)
		}
	}
}

// The effect of a term is what dense algebra says of the average of that term.
func TestEffectsOfTerms(t *testing.T) {
	cov, err := kernel.Parse("a*rbf(1:u)*matern12(2:v)+b*matern52(3:w)", 3)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := exampleOf(cov, 100, 1, 2)
	info := &dataset.Info{InputNames: []string{"a", "b", "c"}, XScale: []dataset.Scale{{Mean: 1, SD: 2}, {Mean: 0, SD: 3}, {Mean: -5, SD: 0.5}}, YScale: dataset.Scale{Mean: 100, SD: 10}}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	values := []func(theta, x, y []float64) float64{
		func(theta, x, y []float64) float64 {
			return theta[0] * math.Exp(-theta[1]*(x[0]-y[0])*(x[0]-y[0])-math.Sqrt(2*theta[2])*math.Abs(x[1]-y[1]))
		},
		func(theta, x, y []float64) float64 {
			a := math.Sqrt(10*theta[4]) * math.Abs(x[2]-y[2])
			return theta[3] * (1 + a + a*a/3) * math.Exp(-a)
		},
	}
	n := len(c.Problem.Y)
	for term, over := range [][]int{{0, 1}, {2}} {
		input := over[0]
		scale := info.XScale[input]
		grid := []float64{scale.Undo(-1), scale.Undo(0.7)}
		r := EffectsRequest{Term: term + 1, Over: over, Inputs: []int{input}, Grid: [][]float64{grid[:1], grid[1:]}, Rows: Averaged(n, 20), Probs: []float64{0.5}}
		got, stats, err := p.Effects(t.Context(), info, r, Options{Tolerance: 1e-8})
		if err != nil || stats.Rows != []int{20, 1}[term] {
			t.Fatalf("%+v, %v", stats, err)
		}
		for g, e := range got {
			var mean, second float64
			for _, psi := range c.Draws {
				theta, noise := c.Problem.At(psi)
				f := cov.At(theta)
				k := mat.NewSymDense(n, nil)
				for i := range n {
					for j := range i + 1 {
						k.SetSym(i, j, f.Value(c.Problem.Inputs.Row(i), c.Problem.Inputs.Row(j)))
					}
					k.SetSym(i, i, k.At(i, i)+noise[min(i, len(noise)-1)])
				}
				var chol mat.Cholesky
				if !chol.Factorize(k) {
					t.Fatal("singular")
				}
				var points [][]float64
				for _, row := range r.Rows {
					x := slices.Clone(c.Problem.Inputs.Row(row))
					x[input] = scale.Apply(grid[g])
					points = append(points, x)
				}
				cross, prior := mat.NewVecDense(n, nil), 0.0
				for _, x := range points {
					for j := range n {
						cross.SetVec(j, cross.AtVec(j)+values[term](theta, x, c.Problem.Inputs.Row(j))/20)
					}
					for _, y := range points {
						prior += values[term](theta, x, y) / 400
					}
				}
				var x mat.VecDense
				if err := chol.SolveVecTo(&x, cross); err != nil {
					t.Fatal(err)
				}
				m := mat.Dot(&x, mat.NewVecDense(n, c.Problem.Y))
				mean += m / float64(len(c.Draws))
				second += (m*m + prior - mat.Dot(&x, cross)) / float64(len(c.Draws))
			}
			if sd := math.Sqrt(second - mean*mean); math.Abs(e.Mean-10*mean) > 1e-6 || math.Abs(e.SD/(10*sd)-1) > 1e-6 {
				t.Errorf("term %d at %g: %+v, want mean %g, sd %g", term, grid[g], e, 10*mean, 10*sd)
			}
		}
	}
}

func TestGrid(t *testing.T) {
	x := []float64{3, 1, 2, 2, 5, 3}
	d := &dataset.Dataset{Info: dataset.Info{Rows: 6, XScale: []dataset.Scale{{Mean: 10, SD: 2}}}, X: kernel.NewInputs(6, 1, x)}
	if got := Grid(d, 0, 4); !slices.Equal(got, []float64{12, 14, 16, 20}) {
		t.Errorf("the values that occur are %v", got)
	}
	if got := Grid(d, 0, 3); !slices.Equal(got, []float64{12, 16, 20}) {
		t.Errorf("three values of four are %v", got)
	}
	if got := Averaged(10, 0); !slices.Equal(got, span(0, 10)) {
		t.Errorf("averaged over %v", got)
	}
	if got := Averaged(5000, 0); len(got) != EffectRows || !slices.IsSorted(got) || !slices.Equal(got, Averaged(5000, EffectRows)) {
		t.Errorf("averaged over %d rows", len(got))
	}
}

// The effect of all inputs together, at a point, is what is expected of a target there: the probability of a class, the
// expected count.
func TestEffectsOfClassesAndCounts(t *testing.T) {
	for _, l := range []likelihood.Likelihood{likelihood.Bernoulli{}, likelihood.Probit{}, likelihood.NegativeBinomial{}} {
		c, _ := augmentedExample(l, 3)
		info := &dataset.Info{InputNames: []string{"a", "b"}, XScale: []dataset.Scale{{Mean: 1, SD: 2}, {Mean: 0, SD: 3}}, YScale: dataset.Scale{SD: 1}}
		p, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		x := []float64{2, -1}
		effects, _, err := p.Effects(t.Context(), info, EffectsRequest{Inputs: []int{0, 1}, Grid: [][]float64{x}, Rows: []int{3}, Probs: []float64{0.1, 0.9}}, Options{Tolerance: 1e-8})
		if err != nil {
			t.Fatal(err)
		}
		rows, _, err := p.Rows(t.Context(), info, Request{X: [][]float64{x}}, Options{Tolerance: 1e-8})
		if err != nil {
			t.Fatal(err)
		}
		if e := effects[0]; math.Abs(e.Mean/rows[0].Mean-1) > 1e-4 || !(0 < e.Quantiles[0] && e.Quantiles[0] < e.Mean && e.Mean < e.Quantiles[1]) {
			t.Errorf("%s: the effect is %+v, the target's expectation %v", l.Name(), e, rows[0].Mean)
		}
	}
}
