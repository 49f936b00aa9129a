package mixture

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Options say how Fit searches.
type Options struct {
	Most     int // components at most; 8 if 0
	Restarts int // for each number of components; 4 if 0
	// Stream returns the stream of random numbers of a restart; each index is asked for
	// once.
	Stream func(index int) *rand.Rand
	// Starts are mixtures to begin with besides random ones, such as one of known modes.
	Starts []*Mixture
}

func (o Options) defaults() Options {
	if o.Most == 0 {
		o.Most = 8
	}
	if o.Restarts == 0 {
		o.Restarts = 4
	}
	return o
}

const (
	steps     = 200  // of EM at most
	trial     = 10   // steps of each random start; the best goes on
	tolerance = 1e-4 // gain in log density a draw that ends it
	patience  = 2    // numbers of components tried beyond the best
	enough    = 300  // draws for each dimension that the search is on
)

// degrees are the degrees of freedom that fits are made with. In many dimensions few of them
// cost acceptance: at ten parameters 15 % between 7 and 30. The first are those of the
// restarts.
var degrees = []float64{15, Heavy, 30}

// Fit returns the mixture that draws, with the given weights or, if they are nil, equal
// ones, are most likely from: EM for t distributions (Peel and McLachlan, Statistics and
// Computing 2000) from the best of several random starts after a few steps (Biernacki, Celeux and
// Govaert, Computational Statistics and Data Analysis 2003), for 1, 2, … components, all of the same degrees
// of freedom, as long as the Bayesian information criterion gains. Weighted draws count
// as their effective number, (Σw)²/Σw². Scales are drawn towards what all have in common by
// one draw's worth; a fit with a component of fewer draws than 2(p+1), by their effective
// number, does not count. The result depends on
// the arguments alone, not on the budget.
func Fit(draws [][]float64, weights []float64, o Options, b *parallel.Budget) (*Mixture, error) {
	o = o.defaults()
	all, err := newFitter(draws, weights)
	if err != nil {
		return nil, err
	}
	f := all.some()
	var best *Mixture
	bestValue := math.Inf(-1)
	try := func(m *Mixture, value float64) {
		if m != nil && value > bestValue {
			best, bestValue = m, value
		}
	}
	for _, m := range o.Starts {
		try(f.judge(f.climb(m, steps)))
	}
	for k := 1; k <= o.Most && (best == nil || k <= best.Len()+patience); k++ {
		try(f.restarts(k, o, b))
	}
	if best == nil {
		return nil, errors.New("mixture: no fit: the draws lie in a plane")
	}
	found := best
	fits, values := make([]*Mixture, len(degrees)), make([]float64, len(degrees))
	b.NewLoop(func(_, i int) { fits[i], values[i] = f.climb(found.with(degrees[i]), steps) }).Run(len(degrees))
	for i, m := range fits {
		try(f.judge(m, values[i]))
	}
	if all != f {
		best, _ = all.climb(best, trial)
	}
	return best, nil
}

// fitter holds what all fits to the same draws share.
type fitter struct {
	x      [][]float64
	w      []float64     // sum 1
	size   float64       // effective number of draws
	pooled *mat.SymDense // covariance of all
	start  *Mixture      // one component
}

// normalise replaces logs of shares by the shares, of sum 1, and returns the log of what the sum was.
func normalise(logs []float64) float64 {
	most := floats.Max(logs)
	var sum float64
	for c, v := range logs {
		logs[c] = 0
		if v > most-40 { // less is lost in the sum
			logs[c] = math.Exp(v - most)
			sum += logs[c]
		}
	}
	floats.Scale(1/sum, logs)
	return most + math.Log(sum)
}

func newFitter(draws [][]float64, weights []float64) (*fitter, error) {
	if len(draws) == 0 {
		return nil, errors.New("mixture: no draws to fit to")
	}
	p := len(draws[0])
	f := &fitter{x: draws, w: make([]float64, len(draws))}
	for i, x := range draws {
		f.w[i] = 1
		if weights != nil {
			f.w[i] = weights[i]
		}
		if len(x) != p || !(f.w[i] >= 0) || math.IsInf(f.w[i], 0) || floats.HasNaN(x) {
			return nil, fmt.Errorf("mixture: draw %d is %v with weight %g", i+1, x, f.w[i])
		}
	}
	total := floats.Sum(f.w)
	if !(total > 0) {
		return nil, errors.New("mixture: all weights are zero")
	}
	floats.Scale(1/total, f.w)
	f.drop()
	f.size = 1 / floats.Dot(f.w, f.w)
	if f.size < 2 {
		return nil, fmt.Errorf("mixture: the draws count as %.1f only", f.size)
	}
	mean := make([]float64, p)
	for i, x := range f.x {
		floats.AddScaled(mean, f.w[i], x)
	}
	f.pooled = mat.NewSymDense(p, nil)
	off := make([]float64, p)
	for i, x := range f.x {
		floats.SubTo(off, x, mean)
		f.pooled.SymRankOne(f.pooled, f.w[i], mat.NewVecDense(p, off))
	}
	for i := range p { // as few draws as there are dimensions span a plane
		f.pooled.SetSym(i, i, f.pooled.At(i, i)*(1+1e-6)+1e-12)
	}
	var err error
	f.start, err = New([]Component{{Weight: 1, Degrees: degrees[0], Mean: mean, Scale: f.pooled}})
	return f, err
}

// drop leaves out draws without a weight.
func (f *fitter) drop() {
	var x [][]float64
	var w []float64
	for i, v := range f.w {
		if v > 0 {
			x, w = append(x, f.x[i]), append(w, v)
		}
	}
	f.x, f.w = x, w
}

// some returns the fitter of a systematic sample, by weight, of enough draws for each dimension; f
// itself if they are no more.
func (f *fitter) some() *fitter {
	most := float64(enough * f.start.dim)
	if float64(len(f.x)) <= most {
		return f
	}
	out := &fitter{pooled: f.pooled, start: f.start}
	var sum float64
	for i, x := range f.x {
		before := math.Floor(sum*most + 0.5)
		sum += f.w[i]
		if times := math.Floor(sum*most+0.5) - before; times > 0 {
			out.x, out.w = append(out.x, x), append(out.w, times)
		}
	}
	floats.Scale(1/floats.Sum(out.w), out.w)
	out.size = 1 / floats.Dot(out.w, out.w)
	return out
}

// restarts returns the best fit of k components and its information criterion.
func (f *fitter) restarts(k int, o Options, b *parallel.Budget) (*Mixture, float64) {
	if k == 1 {
		return f.judge(f.climb(f.start, steps))
	}
	fits, values := make([]*Mixture, o.Restarts), make([]float64, o.Restarts)
	b.NewLoop(func(_, i int) {
		if m := f.random(k, o.Stream((k-2)*o.Restarts+i)); m != nil {
			fits[i], values[i] = f.climb(m, trial)
		}
	}).Run(o.Restarts)
	var best *Mixture
	most := math.Inf(-1)
	for i, m := range fits {
		if m != nil && values[i] > most {
			best, most = m, values[i]
		}
	}
	if best == nil {
		return nil, most
	}
	return f.judge(f.climb(best, steps))
}

// judge returns a fit, of the given mean log density, with its information criterion.
func (f *fitter) judge(m *Mixture, value float64) (*Mixture, float64) {
	p, k := float64(f.start.dim), float64(len(m.comps))
	parameters := k*(1+p+p*(p+1)/2) - 1
	return m, 2*f.size*value - parameters*math.Log(f.size)
}

// random returns a mixture around k draws that are far from each other, chosen as
// k-means++ does in the metric of the pooled covariance.
func (f *fitter) random(k int, r *rand.Rand) *Mixture {
	chance := append([]float64(nil), f.w...)
	least := make([]float64, len(f.x)) // squared distance to the nearest centre
	floats.AddConst(math.Inf(1), least)
	shrink := math.Pow(float64(k), -2/float64(f.start.dim))
	scale := mat.NewSymDense(f.start.dim, nil)
	scale.ScaleSym(shrink, f.pooled)
	var comps []Component
	for range k {
		total := floats.Sum(chance)
		if !(total > 0) {
			return nil // fewer distinct draws than components
		}
		u, at := r.Float64()*total, 0
		for ; at < len(chance)-1 && u >= chance[at]; at++ {
			u -= chance[at]
		}
		comps = append(comps, Component{Weight: 1, Degrees: degrees[0], Mean: f.x[at], Scale: scale})
		near, err := New([]Component{{Weight: 1, Mean: f.x[at], Scale: f.pooled}})
		if err != nil {
			return nil
		}
		for i, x := range f.x {
			least[i] = min(least[i], near.comps[0].distance(x))
			chance[i] = f.w[i] * least[i]
		}
	}
	m, err := New(comps)
	if err != nil {
		return nil
	}
	return m
}

// with returns the mixture with other degrees of freedom.
func (m *Mixture) with(nu float64) *Mixture {
	comps := make([]Component, len(m.comps))
	for k, c := range m.comps {
		comps[k] = c.Component
		comps[k].Degrees = nu
	}
	out, err := New(comps)
	if err != nil {
		panic(err) // the scales are those of m
	}
	return out
}

// climb runs so many steps of EM from m, at most, and returns the fit with its mean log density.
func (f *fitter) climb(m *Mixture, steps int) (*Mixture, float64) {
	last := math.Inf(-1)
	for range steps {
		next, value := f.step(m)
		if next == nil || value < last+tolerance {
			return m, value
		}
		m, last = next, value
	}
	_, value := f.step(m)
	return m, value
}

// step is a step of EM; it returns the mean log density of the mixture before it, and
// nil if a component has died.
func (f *fitter) step(m *Mixture) (*Mixture, float64) {
	p, k := m.dim, len(m.comps)
	type sums struct {
		share, pull float64 // Σ w·s, Σ w·s·u
		heaviest    float64 // Σ (w·s)²
		mean        []float64
		square      []float64 // lower triangle
	}
	acc := make([]sums, k)
	for c := range acc {
		acc[c].mean, acc[c].square = make([]float64, p), make([]float64, p*(p+1)/2)
	}
	share, dist, off := make([]float64, k), make([]float64, k), make([]float64, p)
	var value float64
	for i, x := range f.x {
		for c := range m.comps {
			dist[c] = m.comps[c].distance(x)
			share[c] = m.logDensity(&m.comps[c], dist[c])
		}
		value += f.w[i] * normalise(share)
		for c := range m.comps {
			s := f.w[i] * share[c]
			if s < 1e-12*f.w[i] {
				continue
			}
			nu := m.comps[c].Degrees
			u := s * (nu + float64(p)) / (nu + dist[c])
			a := &acc[c]
			a.share += s
			a.heaviest += s * s
			a.pull += u
			// Around the old mean, so that nothing cancels.
			floats.SubTo(off, x, m.comps[c].Mean)
			floats.AddScaled(a.mean, u, off)
			at := 0
			for r, v := range off {
				for _, o := range off[:r+1] {
					a.square[at] += u * v * o
					at++
				}
			}
		}
	}
	// The scales around the new means, without denominator, and what they have in common.
	common := make([]float64, p*(p+1)/2)
	for c := range acc {
		a := &acc[c]
		if k > 1 && a.share*a.share/a.heaviest < float64(2*(p+1)) {
			return nil, value
		}
		floats.Scale(1/a.pull, a.mean)
		at := 0
		for r, v := range a.mean {
			for _, o := range a.mean[:r+1] {
				a.square[at] -= a.pull * v * o
				at++
			}
		}
		floats.Add(common, a.square)
	}
	prior := 1 / f.size // of one draw
	var comps []Component
	for c := range acc {
		a := &acc[c]
		scale := mat.NewSymDense(p, nil)
		at := 0
		for r := range p {
			for s := range r + 1 {
				scale.SetSym(r, s, (a.square[at]+prior*common[at])/(a.share+prior))
				at++
			}
			scale.SetSym(r, r, scale.At(r, r)+1e-9*f.pooled.At(r, r))
		}
		floats.Add(a.mean, m.comps[c].Mean)
		comps = append(comps, Component{a.share, m.comps[c].Degrees, a.mean, scale})
	}
	next, err := New(comps)
	if err != nil {
		return nil, value
	}
	return next, value
}
