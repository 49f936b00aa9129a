package main

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
)

// two are two rows of one input.
func two(l likelihood.Likelihood, y []float64) *data {
	return onInputs(l, []float64{0, 0.7}, 1, y)
}

// grid calls visit with points of two whitened dimensions and the logarithms of their weights under a standard normal density.
func grid(visit func(z []float64, logWeight float64)) {
	const h, reach = 0.3, 25
	for a := -reach; a <= reach; a++ {
		for b := -reach; b <= reach; b++ {
			z := []float64{h * float64(a), h * float64(b)}
			visit(z, -square(z)/2)
		}
	}
}

// compare holds the mean of draws against what it should be: within 4.5 standard errors, false alarms below 1 in 10⁵ each for other seeds.
func compare(t *testing.T, what string, draws []float64, want float64) {
	t.Helper()
	x := [][]float64{draws}
	se := stat.StdDev(draws, nil) / math.Sqrt(diagnostics.ESSMean(x))
	if m := stat.Mean(draws, nil); !(math.Abs(m-want) < 4.5*se) {
		t.Errorf("%s: the mean is %.4f ± %.4f, by quadrature %.4f", what, m, se, want)
	}
}

// Each operator leaves the posterior of f given θ invariant: means and mean squares of f are those of a quadrature.
func TestOperators(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	for name, c := range map[string]struct {
		l likelihood.Likelihood
		y []float64
	}{
		"logit":      {likelihood.Bernoulli{}, []float64{1, 0}},
		"poisson":    {likelihood.Poisson{}, []float64{3, 0}},
		"volatility": {likelihood.Volatility{}, []float64{2, -0.3}},
	} {
		d := two(c.l, c.y)
		p := d.at([]float64{0.5, -0.5})
		var sum float64
		want := make([]float64, 4)
		grid(func(z []float64, w float64) {
			f := mul(p.lower, z)
			w = math.Exp(w + d.logLik(f))
			sum += w
			floats.Add(want, []float64{w * f[0], w * f[1], w * f[0] * f[0], w * f[1] * f[1]})
		})
		floats.Scale(1/sum, want)
		names, of := operators(d)
		for k, op := range names {
			r, f := rand.New(rand.NewPCG(2, uint64(k))), make([]float64, 2)
			u := of[op].tune()
			if u != nil {
				u.adapt = true
			}
			draws := make([][]float64, 4)
			for i := range 6500 {
				of[op].move(p, f, r)
				if i < 500 {
					continue
				}
				if u != nil {
					u.adapt = false
				}
				for j, x := range []float64{f[0], f[1], f[0] * f[0], f[1] * f[1]} {
					draws[j] = append(draws[j], x)
				}
			}
			for j := range want {
				compare(t, name+", "+op, draws[j], want[j])
			}
		}
	}
}

// Each scheme leaves the posterior of θ invariant: the means of log σ and log ℓ, and of their squares, are those of a quadrature over θ and f.
func TestSchemes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	d := two(likelihood.Bernoulli{}, []float64{1, 0})
	var sum float64
	want := make([]float64, 4)
	const h = 0.25
	for a := -2.5; a <= 8; a += h {
		for b := -8.0; b <= 3; b += h {
			p, inner := d.at([]float64{a, b}), 0.0
			if p == nil {
				t.Fatalf("K is singular at %v, %v", a, b)
			}
			l := []float64{p.lower.At(0, 0), p.lower.At(1, 0), p.lower.At(1, 1)}
			const step, reach = 0.4, 18
			for i := -reach; i <= reach; i++ {
				z := step * float64(i)
				first := math.Exp(-z*z/2) / (1 + math.Exp(-l[0]*z)) // class 1
				for j := -reach; j <= reach; j++ {
					x := step * float64(j)
					inner += first * math.Exp(-x*x/2) / (1 + math.Exp(l[1]*z+l[2]*x)) // class 0
				}
			}
			w := inner * math.Exp(logPrior(p.theta))
			sum += w
			floats.Add(want, []float64{w * a, w * b, w * a * a, w * b * b})
		}
	}
	floats.Scale(1/sum, want)
	names, of, err := schemes(d, 1)
	if err != nil {
		t.Fatal(err)
	}
	for k, name := range names {
		r := rand.New(rand.NewPCG(3, uint64(k)))
		c := &chain{d: d, p: d.at([]float64{0, -0.5}), f: make([]float64, 2)}
		for _, u := range of[name].tuners() {
			u.step = 1
		}
		draws := make([][]float64, 4)
		total := 12000
		if name[:2] == "PM" {
			total = 3000
		}
		for i := range total {
			of[name].iterate(c, r)
			if a, b := c.p.theta[0], c.p.theta[1]; i >= total/10 {
				for j, x := range []float64{a, b, a * a, b * b} {
					draws[j] = append(draws[j], x)
				}
			}
		}
		for j := range want {
			compare(t, name, draws[j], want[j])
		}
	}
}

// The gradients of the length-scales' densities, given f and given ν, are those of central differences, and each stepper leaves them invariant:
// log ℓ drawn on a grid and then moved once has the mean and the mean square of a quadrature.
func TestSteppers(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	for _, l := range []likelihood.Likelihood{likelihood.Bernoulli{}, likelihood.Volatility{}} {
		d := onInputs(l, []float64{0, 0.4, 0.7, 0.9}, 1, []float64{1, 0, 1, 1})
		for what, g := range map[string]*given{
			"given f": {d: d, f: []float64{0.5, -0.3, 0.2, 0.4}, curvature: true},
			"given ν": {d: d, nu: []float64{0.7, -1.2, 0.4, 1}, curvature: true},
		} {
			const h = 1e-5
			at := g.at([]float64{0.5, -0.7})
			if slope := (g.at([]float64{0.5, -0.7 + h}).value - g.at([]float64{0.5, -0.7 - h}).value) / (2 * h); math.Abs(slope-at.grad[0]) > 1e-5*(1+math.Abs(slope)) {
				t.Errorf("%s, %s: the derivative is %v, by differences %v", l.Name(), what, at.grad[0], slope)
			}
			var places []*place
			var below []float64 // the weight of a place and those before it
			var sum, mean, second float64
			for x := -9.0; x < 4; x += 0.02 {
				if p := g.at([]float64{0.5, x}); p != nil {
					w := math.Exp(p.value)
					sum, mean, second = sum+w, mean+w*x, second+w*x*x
					places, below = append(places, p), append(below, sum)
				}
			}
			names, of := steppers()
			for k, name := range names {
				r, moves := rand.New(rand.NewPCG(4, uint64(k))), 0
				var draws [2][]float64
				for range 2000 {
					from := places[sort.SearchFloat64s(below, sum*r.Float64())]
					to := of[name].move(g, from, r)
					if to != from {
						moves++
					}
					x := to.theta[1]
					draws[0], draws[1] = append(draws[0], x), append(draws[1], x*x)
				}
				if moves < 200 {
					t.Errorf("%s, %s, %s: only %d of 2000 moved", l.Name(), what, name, moves)
				}
				compare(t, l.Name()+", "+what+", "+name, draws[0], mean/sum)
				compare(t, l.Name()+", "+what+", "+name+", squares", draws[1], second/sum)
			}
		}
	}
}
