package sampler

import (
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// guessWeight is the number of draws, for each parameter, that the covariance
// measured at the mode counts for when it is pooled with the draws of warm-up:
// a sample covariance of p parameters needs some tens of p draws to be as good.
const guessWeight = 50

// Adapt returns the settings of the next window of a run at a barrier, or of the
// run that certifies it, as the event that they enter it by. They are a function
// of the run alone.
func Adapt(r *chains.Run) (*chains.Event, error) {
	if c := r.Certificate; r.Phase == chains.Certifying {
		s, err := adapt(c)
		return &chains.Event{Certificate: true, Settings: s}, err
	}
	s, err := adapt(r)
	return &chains.Event{Settings: s}, err
}

func adapt(r *chains.Run) (*chains.Settings, error) {
	p := &r.Plan
	m, err := ByName(p.Method)
	if err != nil {
		return nil, err
	}
	s := &chains.Settings{Window: r.NextWindow(), C: r.Prepared.Cov, Early: p.Solver == "ulisse"}
	var mean []float64
	if draws := pooled(r); draws != nil {
		var c *mat.SymDense
		mean, c = chains.Pool(draws, chains.Symmetric(r.Prepared.Cov), guessWeight*float64(p.Params()))
		s.C = chains.Flat(c)
	}
	if err := m.Adapt(r, s, mean); err != nil {
		return nil, err
	}
	if !s.Sane(p.Params()) {
		return nil, errors.New("the statistics of the warm-up are not finite: no metric follows from them")
	}
	return s, nil
}

// pooled returns the draws of all windows but the first, by chain, or nil.
func pooled(r *chains.Run) [][][]float64 {
	var draws [][][]float64
	for _, c := range r.Chains {
		if len(c.Windows) < 2 {
			return nil
		}
		draws = append(draws, slices.Concat(c.Windows[1:]...))
	}
	return draws
}

// startSpread is how many posterior standard deviations the starting points
// scatter: more than one, so that R-hat can see chains that do not mix. What is
// known of a subset only is too wide already: SGLD as published starts from
// N(mode, M).
func startSpread(s Search) float64 {
	if s == OnSubset {
		return 1
	}
	return 2
}

// Starts returns the starting points of the chains of a plan, scattered around the
// mode with the posterior covariance there.
func Starts(p *chains.Plan, s Search, mode []float64, cov *mat.SymDense) ([][]float64, error) {
	var chol mat.Cholesky
	if !chol.Factorize(cov) {
		return nil, errors.New("the covariance at the mode is not positive definite")
	}
	var l mat.TriDense
	chol.LTo(&l)
	starts := make([][]float64, p.Chains)
	for c := range starts {
		z := mat.NewVecDense(p.Params(), nil)
		random.Normal(random.Key{Seed: p.Seed, Chain: c + 1}.Stream(random.Start, 0), z.RawVector().Data)
		z.MulVec(&l, z)
		starts[c] = make([]float64, p.Params())
		floats.AddScaledTo(starts[c], mode, startSpread(s), z.RawVector().Data)
	}
	return starts, nil
}

// reach bounds the length of C·g in posterior standard deviations, the root mean
// square over the parameters. Within the posterior it is about one, √2 with
// noise: of 10⁷ gradients, one is longer if three parameters are normal.
const reach = 5

// shorten bounds (gᵀCg/p)^½ by reach: where a skewed posterior is steep, at a
// dispersed start above all, a step would go as far on the other side. It
// returns the number of gradients that it changed, 0 or 1.
func shorten(g []float64, metric *mat.SymDense) int {
	v := mat.NewVecDense(len(g), g)
	length := math.Sqrt(mat.Inner(v, metric, v) / float64(len(g)))
	if length <= reach {
		return 0
	}
	v.ScaleVec(reach/length, v)
	return 1
}
