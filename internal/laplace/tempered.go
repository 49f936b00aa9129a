package laplace

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// Constants of draws by tempering: how many functions are drawn together, the share of them that weights of a step are worth at least, and the slices of
// each after a step.
const (
	temperedSet   = 16
	temperedWorth = 0.5
	temperedMoves = 3
)

// tempered is a draw of x at a power of the likelihood.
type tempered struct {
	x, f  []float64
	value float64 // log p(y|f)
}

// temper draws x given ψ where slices from one mode to another would take too many: draws of the prior, together, meet the likelihood by
// powers that rise from 0 to 1, weighted and drawn anew at each step, and moved by elliptical slices (a sequential Monte Carlo sampler: Del Moral, Doucet and
// Jasra 2006, with the steps of Jasra, Stephens, Doucet and Tsagaris 2011). The only error is that of ctx.
func (w *White) temper(ctx context.Context, pt *whitened, r *rand.Rand) ([]tempered, error) {
	size, _ := pt.length()
	all := make([]tempered, temperedSet)
	for i := range all {
		x := make([]float64, size)
		random.Normal(r, x)
		all[i] = w.temperedAt(pt, x, pt.function(x))
	}
	for power := 0.0; power < 1; {
		step := nextPower(all, 1-power)
		power = min(1, power+step)
		all = drawnAnew(r, all, step)
		for i := range all {
			for range temperedMoves {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				all[i] = w.priorSlice(pt, all[i], power, r)
			}
		}
	}
	return all, nil
}

func (w *White) temperedAt(pt *whitened, x, f []float64) tempered {
	v := w.value(pt.own, f)
	if math.IsNaN(v) {
		v = math.Inf(-1)
	}
	return tempered{x, f, v}
}

// worth returns how many equal weights those of a step are worth.
func worth(all []tempered, step float64) float64 {
	var sum, square float64
	top := math.Inf(-1)
	for _, t := range all {
		top = max(top, t.value)
	}
	for _, t := range all {
		v := math.Exp(step * (t.value - top))
		sum, square = sum+v, square+v*v
	}
	return sum * sum / square
}

// nextPower returns the longest step, most at most, whose weights are worth enough.
func nextPower(all []tempered, most float64) float64 {
	enough := func(step float64) bool { return worth(all, step) >= temperedWorth*float64(len(all)) }
	if enough(most) {
		return most
	}
	lo, hi := 0.0, most
	for range 40 {
		if mid := (lo + hi) / 2; enough(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// drawnAnew draws as many with the weights of a step, by one uniform number (systematic resampling).
func drawnAnew(r *rand.Rand, all []tempered, step float64) []tempered {
	weights, top := make([]float64, len(all)), math.Inf(-1)
	for _, t := range all {
		top = max(top, t.value)
	}
	for i, t := range all {
		weights[i] = math.Exp(step * (t.value - top))
	}
	floats.CumSum(weights, weights)
	n := float64(len(all))
	out, u, i := make([]tempered, 0, len(all)), r.Float64(), 0
	for k := range all {
		for i < len(all)-1 && weights[i] < (float64(k)+u)/n*weights[len(all)-1] {
			i++
		}
		out = append(out, all[i])
	}
	return out
}

// priorSlice moves x by an elliptical slice about the prior, with a power of the likelihood.
func (w *White) priorSlice(pt *whitened, at tempered, power float64, r *rand.Rand) tempered {
	x := make([]float64, len(at.x))
	random.Normal(r, x)
	f := pt.function(x)
	level := power*at.value - r.ExpFloat64()
	angle := 2 * math.Pi * r.Float64()
	for lo, hi := angle-2*math.Pi, angle; ; {
		s, c := math.Sincos(angle)
		mix := func(a, b []float64) []float64 {
			out := slices.Clone(a)
			floats.Scale(c, out)
			floats.AddScaled(out, s, b)
			return out
		}
		to := w.temperedAt(pt, mix(at.x, x), mix(at.f, f))
		if power*to.value > level || angle == 0 {
			return to
		}
		if angle < 0 {
			lo = angle
		} else {
			hi = angle
		}
		angle = lo + (hi-lo)*r.Float64()
	}
}

// whiten returns the ν of x.
func (pt *whitened) whiten(x []float64) []float64 {
	_, n := pt.length()
	nu := make([]float64, n)
	from := floats.SubTo(make([]float64, len(x)), x, pt.mode)
	for i := range from { // Cᵀ(x − x̂): C is lower, and row i of Cᵀ begins at i
		sum := 0.0
		for j := i; j < len(from); j++ {
			sum += pt.lower.At(j, i) * from[j]
		}
		from[i] = sum
	}
	pt.each(func(b block, lo, _, at int) {
		for j, place := range b.at {
			nu[at+place] = from[lo+j]
		}
	})
	return nu
}
