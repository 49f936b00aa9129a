package solve

import (
	"context"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
)

// Law is the distribution of ULISSE's stopping time. Step 0 of the tail is
// always added; Prob returns the probability 1/w_j of adding step j ≥ 1 when
// all before it were added, in (0,1]. norms are the lengths ‖δ‖ of the steps so far, tail included, which
// a law may use to tell how fast the steps shrink: they do not depend on the
// random choices, so the estimate stays unbiased.
type Law interface {
	Prob(j int, norms []float64) float64
}

// PaperLaw is the law of Filippone and Engler (2015): w_j = exp(j/β). (Their
// text says exp(βj), their Figure 3 can only be exp(j/β); β = 1, which they
// use for SGLD, is the same in both.)
type PaperLaw struct{ Beta float64 }

// Prob returns exp(−j/β).
func (l PaperLaw) Prob(j int, _ []float64) float64 { return math.Exp(-float64(j) / l.Beta) }

// GeometricLaw continues with a constant probability.
type GeometricLaw struct{ P float64 }

// Prob returns P.
func (l GeometricLaw) Prob(int, []float64) float64 { return l.P }

// DecayLaw minimises the variance of the estimate times its cost. With
// survival probabilities S_j the variance of the tail is about Σ‖δ_j‖²/S_j and
// its cost Σ S_j, so that S_j ∝ ‖δ_j‖ is best: the chance to go on is the ratio
// of consecutive step lengths, here their mean over the last few steps. It
// stays within [MinProb, MaxProb].
type DecayLaw struct{ MinProb, MaxProb float64 }

// decayWindow is the number of steps that DecayLaw averages over: CG's steps
// are erratic one by one.
const decayWindow = 10

// Prob returns the mean decay of the last steps.
func (l DecayLaw) Prob(_ int, norms []float64) float64 {
	m := len(norms) - 1
	k := min(decayWindow, m)
	p := l.MaxProb
	if k > 0 && norms[m-k] > 0 {
		p = math.Pow(norms[m]/norms[m-k], 1/float64(k))
	}
	return min(max(p, l.MinProb), l.MaxProb)
}

// Early says how to stop early.
type Early struct {
	// Q sets where the tail begins: at the first residual ‖r‖ < Q·√n. The
	// step after it is sure.
	Q float64
	// Law is the law of the stopping time.
	Law Law
	// Streams is the number of estimates wanted of each solution. They are
	// independent given the right-hand side: a form that is quadratic in the
	// solution needs two.
	Streams func(column int) int
	// Rand returns the random numbers of a column's stream.
	Rand func(column, stream int) *rand.Rand
}

// tail is the randomly truncated end of a column's sum of steps.
type tail struct {
	law     Law
	j       int // next step of the tail
	norms   *[]float64
	streams []tailStream
}

type tailStream struct {
	extra   []float64 // what the estimate has beyond CG's iterate
	weight  float64   // Π w_r
	rand    *rand.Rand
	stopped bool
}

// next decides, for each stream, whether to add step j, and reports whether
// any does.
func (t *tail) next() bool {
	p := t.law.Prob(t.j, *t.norms)
	t.j++
	going := false
	for i := range t.streams {
		st := &t.streams[i]
		if st.stopped {
			continue
		}
		if st.rand.Float64() >= p {
			st.stopped = true
			continue
		}
		st.weight /= p
		going = true
	}
	return going
}

// advance gives each stream its weight of the step that CG's iterate has
// taken: none once it has stopped.
func (t *tail) advance(alpha float64, p []float64) {
	for i := range t.streams {
		st := &t.streams[i]
		w := st.weight
		if st.stopped {
			w = 0
		}
		floats.AddScaled(st.extra, alpha*(w-1), p)
	}
}

// Estimate returns random x̃ with E[x̃] = x, the solution to the solver's
// tolerance, from fewer iterations than Solve (ULISSE: Filippone and Engler
// 2015, section 4): estimates[column][stream]. x0 holds the starting points
// and afterwards the last iterates of CG, where a nearby system may start.
// Columns that reach the tolerance before their
// stopping time end there, without error of truncation.
//
// The Residuals reported are those of the recurrence where the column stopped.
func (s *Solver) Estimate(ctx context.Context, x0, b [][]float64, early Early) (estimates [][][]float64, rep Report, err error) {
	if s.opt.Mixed {
		panic("solve: Estimate needs double precision: its tail is not verified")
	}
	if err := s.start(ctx, x0, b, &rep); err != nil {
		return nil, rep, err
	}
	threshold := early.Q * math.Sqrt(float64(s.op.Len()))
	begin := func(i int, c *column) {
		c.tail = &tail{law: early.Law, j: 1, norms: &c.norms, streams: make([]tailStream, early.Streams(i))}
		for k := range c.tail.streams {
			c.tail.streams[k] = tailStream{extra: make([]float64, s.op.Len()), weight: 1, rand: early.Rand(i, k)}
		}
	}
	index := make(map[*column]int, len(s.cols))
	s.active = s.active[:0]
	for i, c := range s.cols {
		index[c] = i
		s.active = append(s.active, c)
	}
	// goes reports whether the column takes another step.
	goes := func(c *column) bool {
		if c.rnorm <= c.target || c.iter >= s.opt.MaxIter {
			return false
		}
		switch {
		case c.tail != nil:
			return c.tail.next()
		case c.sure:
			begin(index[c], c)
			return c.tail.next()
		case c.rnorm < threshold:
			c.sure = true
		}
		return true
	}
	s.keep(goes)
	s.precondition()
	for _, c := range s.active {
		copy(c.p, c.z)
		c.rz = floats.Dot(c.r, c.z)
	}
	for len(s.active) > 0 {
		if err := s.step(ctx, &rep); err != nil {
			return nil, rep, err
		}
		for _, c := range s.active {
			if c.rz > 0 {
				c.norms = append(c.norms, c.delta)
			}
		}
		s.keep(func(c *column) bool { return c.rz > 0 && goes(c) })
		s.directions()
	}

	estimates = make([][][]float64, len(s.cols))
	for i, c := range s.cols {
		for k := range early.Streams(i) {
			est := append([]float64(nil), c.x...)
			if c.tail != nil {
				floats.Add(est, c.tail.streams[k].extra)
			}
			estimates[i] = append(estimates[i], est)
		}
	}
	for _, c := range s.cols {
		if c.sure || c.rnorm <= c.target {
			c.target = c.rnorm // stopping early is not failing to converge
		}
	}
	s.finish(&rep)
	return estimates, rep, nil
}
