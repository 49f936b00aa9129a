package metropolis

import (
	"math"
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/mixture"
)

// Refined is a distribution that is nearer to a target than Base is, by a rough idea of the
// target's log density: its density is, up to a constant,
//
//	base(x)·min(max(exp(Rough(x))/base(x), exp(Low)), exp(High))
//
// Draws are independent, by rejection. However wrong the idea is, importance weights are at
// most exp(High−Low) times what they would be of Base itself, and no region where the idea is
// much too high takes more than exp(High) times the proposals that Base has there. It is the
// first stage of delayed acceptance (Christen and Fox, Journal of Computational and Graphical
// Statistics 2005) for independent proposals, made beforehand, so that the exact densities of
// a whole list can be computed side by side.
type Refined struct {
	Base      mixture.Distribution
	Rough     func(x []float64) float64 // −∞ or NaN where there is nothing
	Low, High float64
}

// Constants of Refine, as factors on the mean ratio of the rough density to the base.
const (
	// least bounds what is proposed of the base alone to that share.
	least = 0.1
	// most is about how many draws of the base a proposal takes.
	most = 12
)

// Refine returns proposals refined by a rough log density, with bounds that a sample of the
// base with its rough log densities suggests. Where the sample finds nothing of the rough density the base is returned as
// it is.
func Refine(base mixture.Distribution, rough func(x []float64) float64, sample [][]float64, values []float64) mixture.Distribution {
	p := &Proposals{X: sample, Target: values}
	for _, x := range sample {
		p.Proposal = append(p.Proposal, base.LogDensity(x))
	}
	w, err := Weigh(p)
	if err != nil {
		return base
	}
	return &Refined{Base: base, Rough: rough, Low: w.LogConstant + math.Log(least), High: w.LogConstant + math.Log(most)}
}

// Dim returns the dimension.
func (r *Refined) Dim() int { return r.Base.Dim() }

// ratio is the log of the density's ratio to the base.
func (r *Refined) ratio(x []float64, base float64) float64 {
	v := r.Rough(x) - base
	if !(v > r.Low) { // or NaN
		return r.Low
	}
	return min(v, r.High)
}

// LogDensity returns the log density at x up to a constant.
func (r *Refined) LogDensity(x []float64) float64 {
	base := r.Base.LogDensity(x)
	return base + r.ratio(x, base)
}

// Draw sets dst to a draw.
func (r *Refined) Draw(rnd *rand.Rand, dst []float64) {
	for {
		r.Base.Draw(rnd, dst)
		if math.Log(rnd.Float64()) < r.ratio(dst, r.Base.LogDensity(dst))-r.High {
			return
		}
	}
}
