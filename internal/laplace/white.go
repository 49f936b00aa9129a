package laplace

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// White is the joint density of ψ and the latent function f in coordinates ν that Laplace's approximation makes nearly
// independent of ψ and of each other. With K = FFᵀ, x̂ the mode of x, f = Fx, and CCᵀ = I + FᵀWF,
//
//	f = F(x̂ + C⁻ᵀν),  log p(ψ,ν) = log p(ψ) + log p(y|f) − ½|x|² − ½ log|CCᵀ| + log N(ν|0,I) + ½|ν|²
//
// up to a constant. Where the approximation is exact ν is standard normal given ψ. Where it is not the density is no less
// exact: it is that of p(ψ,f|y) for any x̂ and C that are functions of ψ. (Whitening the prior alone, x in place of
// ν, is right where data say little, and f itself where they say much: Murray and Adams 2010, Filippone, Zhong and Girolami 2013. ν is
// both.) Of several latent functions (likelihood.Several) f, x and ν are theirs one after the other, and F is block diagonal.
//
// F is the Cholesky factor of K with rows in an order that does not depend on ψ, so that f is a smooth function of (ψ,ν), and ends
// where next to nothing is left of K: rank r takes O(nr²) time, which smooth functions on grids need little of. A White is not safe for
// concurrent use.
type White struct {
	target
	parts  []*part   // of each latent function
	limit  float64   // the variance that may be left of a row
	within float64   // nats below the mode where Newton's method ends
	last   float64   // whiteLast, or 0
	near   []float64 // the score at the mode at the ψ that it was made for: where searches for the mode begin
	points []*whitened
}

// part is what the rows of a latent function are correlated by. Functions of one covariance share it.
type part struct {
	posterior.Part
	order []int
}

// block is that of F of a latent function.
type block struct {
	at []int      // places of its columns among the function's in ν
	f  *mat.Dense // Fᵀ, r×n
}

// whitened is what a White knows of a ψ.
type whitened struct {
	psi    []float64
	blocks []block   // of each latent function; nil where there is no density
	mode   []float64 // x̂
	chol   mat.Cholesky
	lower  mat.TriDense // C
	own    []float64
	base   float64 // log p(ψ) − ½ log|CCᵀ|
	value  float64 // log p(ψ) + log q(y|ψ), Laplace's approximation
}

// Constants of factors. What is left out of K changes log p(y|ψ) by half of it times the sum of W, about.
const (
	whiteError    = 1e-3 // nats that what is left out may change
	mostResidual  = 1e-5 // of the largest variance, that may be left of a row
	leastResidual = 1e-10
	orderFiner    = 4.5 // log rates that the order of rows is chosen for are higher by this at last
	orderStep     = 1.5
	orderRank     = 1000 // rows that are chosen; the others come as they are
	whiteNear     = 1e-2 // any x̂ near the mode will do
	whiteLast     = 0.5  // nats: a step of Newton's method from so near is the last one, with the W that it began with
)

// NewWhite returns the density of a problem, in coordinates that suit it best near a ψ. The likelihood is to be one of
// likelihood.Concave, or likelihood.Several.
func NewWhite(ctx context.Context, p *posterior.Problem, psi []float64) (*White, error) {
	w := &White{target: newTarget(p), within: whiteNear, last: whiteLast}
	for c := range p.Functions() {
		if c > 0 && p.Terms == nil {
			w.parts = append(w.parts, w.parts[0])
			continue
		}
		own := &part{Part: p.Part(c)}
		var err error
		if own.order, err = w.pivots(ctx, own, psi); err != nil {
			return nil, err
		}
		w.parts = append(w.parts, own)
	}
	pt, err := w.point(ctx, psi)
	if err == nil && pt.blocks != nil {
		var curvature curvature
		_, w.near, curvature = w.expand(pt.own, pt.function(pt.mode))
		w.limit = 2 * whiteError / curvature.trace()
	}
	w.Forget()
	return w, err
}

// Forget forgets all that was computed.
func (w *White) Forget() { w.points = nil }

// direction returns C⁻ᵀν.
func (pt *whitened) direction(nu []float64) []float64 {
	r, _ := pt.length()
	x := mat.NewVecDense(r, nil)
	pt.each(func(b block, lo, _, from int) {
		for j, at := range b.at {
			x.SetVec(lo+j, nu[from+at])
		}
	})
	_ = x.SolveVec(pt.lower.T(), x) // it only warns of ill-conditioning
	return x.RawVector().Data
}

// newton sets the mode at a point, and the factor there. It reports false where there is none.
func (w *White) newton(ctx context.Context, pt *whitened) (bool, error) {
	r, _ := pt.length()
	x := make([]float64, r)
	sum, score, curvature := w.expand(pt.own, pt.function(x))
	height := sum
	try := func(to []float64) bool {
		s, g, c := w.expand(pt.own, pt.function(to))
		if h := s - floats.Dot(to, to)/2; h > height {
			x, height, score, curvature = to, h, g, c
			return true
		}
		return false
	}
	if w.near != nil {
		try(pt.back(w.near))
	}
	for range newtonSteps {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if math.IsNaN(height) || math.IsInf(height, 0) || !pt.factorize(curvature) {
			return false, nil
		}
		g := pt.back(score)
		floats.Sub(g, x)
		step := mat.NewVecDense(len(g), nil)
		_ = pt.chol.SolveVecTo(step, mat.NewVecDense(len(g), g))
		moved, below := false, floats.Dot(g, step.RawVector().Data)/2
		if below > w.within {
			for by, k := 1.0, 0; k < halvings && !moved; k++ {
				moved = try(floats.AddScaledTo(make([]float64, len(x)), x, by, step.RawVector().Data))
				by /= 2
			}
		}
		if !moved || below < w.last {
			break
		}
	}
	pt.mode = x
	pt.chol.LTo(&pt.lower)
	prior, _ := w.problem.LogPrior(pt.psi)
	pt.base = prior - pt.chol.LogDet()/2
	pt.value = pt.base + height
	return !math.IsNaN(pt.value) && !math.IsInf(pt.value, 0), nil
}

// point returns what is known of ψ. The only error is that of ctx.
func (w *White) point(ctx context.Context, psi []float64) (*whitened, error) {
	for i, pt := range w.points {
		if slices.Equal(pt.psi, psi) {
			w.points = append(slices.Delete(w.points, i, i+1), pt) // the last to be forgotten
			return pt, nil
		}
	}
	pt := &whitened{psi: slices.Clone(psi)}
	if !w.problem.Params.Usable(psi) {
		return pt, ctx.Err()
	}
	_, pt.own = w.problem.Natural(psi)
	ok, err := w.factor(ctx, pt)
	if ok {
		ok, err = w.newton(ctx, pt)
	}
	if err != nil {
		return nil, err
	}
	if !ok {
		pt.blocks = nil
	}
	w.points = append(w.points[max(0, len(w.points)-1):], pt)
	return pt, nil
}

// Density returns the log density of ψ and ν, without that of N(ν|0,I); −∞ where there is none. The only error is that of ctx.
func (w *White) Density(ctx context.Context, psi, nu []float64) (float64, error) {
	pt, err := w.point(ctx, psi)
	if err != nil || pt.blocks == nil {
		return math.Inf(-1), err
	}
	x := floats.AddTo(make([]float64, len(pt.mode)), pt.mode, pt.direction(nu))
	return w.density(pt, x, pt.function(x), nu), nil
}

// density is that of x, with f and ν.
func (w *White) density(pt *whitened, x, f, nu []float64) float64 {
	square := 0.0
	pt.each(func(b block, _, _, from int) {
		for _, at := range b.at {
			square += nu[from+at] * nu[from+at]
		}
	})
	v := pt.base + w.value(pt.own, f) - floats.Dot(x, x)/2 + square/2
	if math.IsNaN(v) {
		return math.Inf(-1)
	}
	return v
}

// Function returns f at ψ and ν, nil where there is none. The only error is that of ctx.
func (w *White) Function(ctx context.Context, psi, nu []float64) ([]float64, error) {
	pt, err := w.point(ctx, psi)
	if err != nil || pt.blocks == nil {
		return nil, err
	}
	return pt.function(floats.AddTo(make([]float64, len(pt.mode)), pt.mode, pt.direction(nu))), nil
}

// Slice moves ν given ψ by an elliptical slice (Murray, Adams and MacKay 2010, figure 2), on which f moves on a straight ellipse: that takes
// O(nr) time, and O(n) for each point that is tried. The only error is that of ctx.
func (w *White) Slice(ctx context.Context, psi, nu []float64, r *rand.Rand) error {
	pt, err := w.point(ctx, psi)
	if err != nil || pt.blocks == nil {
		return err
	}
	to := make([]float64, len(nu))
	random.Normal(r, to)
	u, v := pt.direction(nu), pt.direction(to)
	f, fu, fv := pt.function(pt.mode), pt.function(u), pt.function(v)
	at := func(angle float64) (x, f2, nu2 []float64) {
		s, c := math.Sincos(angle)
		mix := func(base, a, b []float64) []float64 {
			out := make([]float64, len(a))
			if base != nil {
				copy(out, base)
			}
			floats.AddScaled(out, c, a)
			floats.AddScaled(out, s, b)
			return out
		}
		return mix(pt.mode, u, v), mix(f, fu, fv), mix(nil, nu, to)
	}
	x, f0, same := at(0)
	level := w.density(pt, x, f0, same) - r.ExpFloat64()
	angle := 2 * math.Pi * r.Float64()
	for lo, hi := angle-2*math.Pi, angle; ; {
		x, f, moved := at(angle)
		if w.density(pt, x, f, moved) > level || angle == 0 {
			copy(nu, moved)
			return nil
		}
		if angle < 0 {
			lo = angle
		} else {
			hi = angle
		}
		angle = lo + (hi-lo)*r.Float64()
	}
}
