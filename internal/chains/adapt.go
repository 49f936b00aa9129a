package chains

import (
	"errors"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/mode"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// guessWeight is the number of draws, for each parameter, that the covariance
// measured at the mode counts for when it is pooled with the draws of warm-up:
// a sample covariance of p parameters needs some tens of p draws to be as good.
const guessWeight = 50

// Adapt returns the settings of the next window of a run at a barrier.
func Adapt(r *Run) (*Settings, error) {
	p := &r.Plan
	s := &Settings{Window: r.nextWindow(), C: r.Prepared.Cov, Early: p.Solver == "ulisse"}
	if draws := r.pooled(); draws != nil {
		mean, c := sgld.Pool(draws, symmetric(r.Prepared.Cov), guessWeight*float64(p.Params()))
		s.C = Flat(c)
		switch p.Method {
		case "cholesky":
			s.Mean = mean
		case "exact": // few draws: the mode counts for some
			n := 0.0
			for _, d := range draws {
				n += float64(len(d))
			}
			w := guessWeight / (guessWeight + n)
			for i := range mean {
				mean[i] += w * (r.Prepared.Psi[i] - mean[i])
			}
			s.Mean = mean
		}
	} else if p.Method == "exact" {
		s.Mean = r.Prepared.Psi
	}
	switch p.Method {
	case "sgld":
		s.Probes = p.Probes
		if s.Probes == 0 {
			s.Probes = sgldProbes
		}
	case "fisher", "leimkuhler-matthews":
		noise := r.noise()
		if p.Solver == "auto" {
			if err := r.chooseSolver(s, noise); err != nil {
				return nil, err
			}
		}
		if err := p.tune(s, noise); err != nil {
			return nil, err
		}
	}
	if !s.sane(p.Params()) {
		return nil, errors.New("the statistics of the warm-up are not finite: no metric follows from them")
	}
	return s, nil
}

// sgldProbes is the Nr of Filippone and Engler (2015).
const sgldProbes = 4

// pooled returns the draws of all windows but the first, by chain, or nil.
func (r *Run) pooled() [][][]float64 {
	var draws [][][]float64
	for _, c := range r.Chains {
		if len(c.Windows) < 2 {
			return nil
		}
		draws = append(draws, slices.Concat(c.Windows[1:]...))
	}
	return draws
}

// noise returns the mean covariances of the gradients of the last window, or
// those at the mode.
func (r *Run) noise() Stats {
	var sum Stats
	for _, c := range r.Chains {
		sum.add(c.Stats)
	}
	if sum.Spreads == 0 {
		return Stats{Spreads: 1, ProbeCov: r.Prepared.ProbeCov, SolverCov: r.Prepared.SolverCov}
	}
	for _, x := range [][]float64{sum.ProbeCov, sum.SolverCov} {
		for i := range x {
			x[i] /= float64(sum.Spreads)
		}
	}
	if len(sum.SolverCov) == 0 { // solves have not stopped early yet
		sum.SolverCov = r.Prepared.SolverCov
	}
	return sum
}

// tune fills in the probes and the step of Fisher-matched Langevin and of
// Leimkuhler and Matthews's dynamics.
func (p *Plan) tune(s *Settings, noise Stats) error {
	if len(noise.ProbeCov) == 0 {
		return fmt.Errorf("the noise of the gradient was not measured")
	}
	s.ProbeCov = noise.ProbeCov
	if s.Early {
		s.SolverCov = noise.SolverCov
	}
	lo, hi := minProbes, p.MaxProbes
	if p.Probes > 0 {
		lo, hi = p.Probes, p.Probes
	}
	allows := sgld.AllowsFisher
	if p.Method == "leimkuhler-matthews" {
		allows = sgld.AllowsLeimkuhler
	}
	var err error
	s.Probes, s.Step, err = sgld.Tune(symmetric(s.C), symmetric(s.ProbeCov), symmetric(s.SolverCov), allows, p.Step, lo, hi)
	if err != nil {
		return err
	}
	if p.Method == "leimkuhler-matthews" {
		k, err := s.Leimkuhler()
		if err != nil {
			return err
		}
		s.Budget = k.Budget
		return nil
	}
	f, err := s.Fisher()
	if err != nil {
		return err
	}
	s.Budget = f.Budget
	return nil
}

// elementCost is what an element of K costs to evaluate, in units of what it
// costs to multiply it with one right-hand side.
const elementCost = 8

// chooseSolver decides whether solves stop early where that is left open. The
// first window solves to the tolerance, the second stops early; from the third
// on the solves stop early if the step that is wanted can be afforded with the
// noise that this adds, and the work for a gradient, more probes included, is
// less: numbers of products and covariances decide, never a clock.
func (r *Run) chooseSolver(s *Settings, noise Stats) error {
	p := &r.Plan
	if len(p.Windows) < 3 || s.Window == 0 {
		return nil
	}
	mean := float64(noise.Products) / float64(max(1, noise.Spreads))
	s.Plain = r.Settings.Plain
	switch s.Window {
	case 1:
		s.Plain, s.Early = mean, true
		return nil
	case 2:
		work := func(early bool, products float64) (work, step float64, err error) {
			t := *s
			t.Early = early
			err = p.tune(&t, noise)
			return products * (elementCost + 1 + float64(t.Probes)), t.Step, err
		}
		plain, h, err := work(false, s.Plain)
		if err != nil {
			return err
		}
		early, hEarly, err := work(true, mean)
		if err != nil {
			return err
		}
		s.Early = hEarly >= h && early < plain && noise.SolverCov != nil
	default:
		s.Early = r.Settings.Early
	}
	return nil
}

// Fisher returns the transition kernel of the settings.
func (s *Settings) Fisher() (*sgld.Fisher, error) {
	return sgld.NewFisher(symmetric(s.C), s.noise(), s.Step)
}

// Leimkuhler returns the transition kernel of the settings.
func (s *Settings) Leimkuhler() (*sgld.Leimkuhler, error) {
	return sgld.NewLeimkuhler(symmetric(s.C), s.noise(), s.Step)
}

// noise returns the covariance of a gradient.
func (s *Settings) noise() *mat.SymDense {
	noise := symmetric(s.ProbeCov)
	noise.ScaleSym(1/float64(s.Probes), noise)
	if w := symmetric(s.SolverCov); w != nil {
		noise.AddSym(noise, w)
	}
	return noise
}

// Metric returns C.
func (s *Settings) Metric() *mat.SymDense { return symmetric(s.C) }

// symmetric returns a p×p matrix from its elements, nil from none.
func symmetric(x []float64) *mat.SymDense {
	if len(x) == 0 {
		return nil
	}
	p := 1
	for p*p < len(x) {
		p++
	}
	return mat.NewSymDense(p, slices.Clone(x))
}

// Flat returns the elements of a symmetric matrix, all p×p of them.
func Flat(a *mat.SymDense) []float64 {
	p := a.SymmetricDim()
	x := make([]float64, 0, p*p)
	for i := range p {
		for j := range p {
			x = append(x, a.At(i, j))
		}
	}
	return x
}

// SetPoint fills in the mode, the covariance and the starting points.
func (p *Prepared) SetPoint(plan *Plan, pt *mode.Point) error {
	cov, err := pt.Covariance()
	if err != nil {
		return err
	}
	p.Psi, p.Cov = pt.Psi, Flat(cov)
	p.Starts, err = plan.Starts(pt.Psi, cov)
	return err
}
