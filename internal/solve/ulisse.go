package solve

import (
	"context"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
)

// Law is the distribution of ULISSE's stopping time. Step 0 of the tail is
// always added; Prob returns the probability 1/w_j of adding step j ≥ 1 when
// all before it were added, in (0,1]. steps are the steps of CG so far, the
// tail's 0 to j−1 the last of them, which a law may use to tell how fast they
// shrink: they do not depend on the random choices, so the estimate stays
// unbiased.
type Law interface {
	Prob(j int, steps []Step) float64
}

// Step is the length of a step δ of CG.
type Step struct {
	Norm   float64 // ‖δ‖
	Energy float64 // ‖δ‖_K = (δᵀKδ)^½, which is (αrᵀz)^½, with preconditioner or without
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
	steps   *[]Step
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
	p := t.law.Prob(t.j, *t.steps)
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
		c.tail = &tail{law: early.Law, j: 1, steps: &c.steps, streams: make([]tailStream, early.Streams(i))}
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
	if err := s.precondition(ctx); err != nil {
		return nil, rep, err
	}
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
				c.steps = append(c.steps, c.last)
			}
		}
		s.keep(func(c *column) bool { return c.rz > 0 && goes(c) })
		if err := s.directions(ctx); err != nil {
			return nil, rep, err
		}
	}

	for _, c := range s.cols {
		if c.sure || c.rnorm <= c.target {
			c.target = c.rnorm // stopping early is not failing to converge
		}
	}
	s.finish(&rep)
	return s.estimates(early), rep, nil
}

// estimates returns those of each column and stream.
func (s *Solver) estimates(early Early) [][][]float64 {
	all := make([][][]float64, len(s.cols))
	for i, c := range s.cols {
		for k := range early.Streams(i) {
			est := append([]float64(nil), c.x...)
			if c.tail != nil {
				floats.Add(est, c.tail.streams[k].extra)
			}
			all[i] = append(all[i], est)
		}
	}
	return all
}
