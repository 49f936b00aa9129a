package likelihood

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Ordinal is the likelihood of three or more classes in order, 0, 1, 2, …: y = c if b_c < f+ε ≤ b_{c+1}, ε ~ N(0,1), with
// the thresholds b_0 = −∞, b_1 = 0 and b_C = ∞. Its parameters are the gaps b_{c+1} − b_c, one for each class that is neither
// the first nor the last.
//
// The state of a row is u = f+ε, which is the pseudo-target, with noise 1; given f it is normal, truncated to the interval that
// y says (Albert and Chib 1993). Given all u the gaps could hardly move, between the u of neighbouring classes: they move
// with u left out (Cowles 1996).
type Ordinal struct {
	Classes []string // in order
}

var (
	_ Likelihood   = Ordinal{}
	_ Augmentation = Ordinal{}
)

// Name returns ordinal.
func (Ordinal) Name() string { return "ordinal" }

// Params returns the gaps.
func (o Ordinal) Params() param.List {
	var out param.List
	for c := 1; c < len(o.Classes)-1; c++ {
		out = append(out, param.Param{Symbol: "gap", Index: o.Classes[c], Role: param.Gap})
	}
	return out
}

// maxClasses bounds the classes, each of which but two has a parameter.
const maxClasses = 30

// Check returns an error if a target is none of the classes.
func (o Ordinal) Check(y []float64) error {
	if len(o.Classes) < 3 {
		return fmt.Errorf("model.likelihood: ordinal needs three classes or more, and there are %d: of two classes use bernoulli", len(o.Classes))
	}
	if len(o.Classes) > maxClasses {
		return fmt.Errorf("the target has %d values: model.likelihood: ordinal is for %d classes at most; join some, or learn it as a number", len(o.Classes), maxClasses)
	}
	same := true
	for i, v := range y {
		if !(v >= 0 && v < float64(len(o.Classes)) && v == math.Round(v)) {
			return fmt.Errorf("the target of row %d is %g: the %d classes of model.likelihood: ordinal have the numbers from 0 on", i+1, v, len(o.Classes))
		}
		same = same && v == y[0]
	}
	if same {
		return fmt.Errorf("the targets of all %d rows are of one class: there is nothing to tell apart", len(y))
	}
	return nil
}

// Standardized returns false.
func (Ordinal) Standardized() bool { return false }

// thresholds returns b_0 to b_C.
func thresholds(gaps []float64) []float64 {
	b := append(make([]float64, 0, len(gaps)+3), math.Inf(-1), 0)
	for _, g := range gaps {
		b = append(b, b[len(b)-1]+g)
	}
	return append(b, math.Inf(1))
}

// interval returns the thresholds on both sides of class c.
func interval(gaps []float64, c int) (lo, hi float64) {
	if c == 0 {
		return math.Inf(-1), 0
	}
	for _, g := range gaps[:c-1] {
		lo += g
	}
	if c > len(gaps) {
		return lo, math.Inf(1)
	}
	return lo, lo + gaps[c-1]
}

// LogDensity returns log p(y|f) and its derivatives in f.
func (Ordinal) LogDensity(theta []float64, y, f float64) (value, score, curvature float64) {
	lo, hi := interval(theta, int(y))
	lo, hi = lo-f, hi-f
	value = logNormalBetween(lo, hi)
	var slope float64 // of the difference of the densities
	if !math.IsInf(lo, 0) {
		p := math.Exp(logNormalDensity(lo) - value)
		score, slope = p, lo*p
	}
	if !math.IsInf(hi, 0) {
		p := math.Exp(logNormalDensity(hi) - value)
		score, slope = score-p, slope-hi*p
	}
	return value, score, score*score - slope
}

// Augmentation returns the likelihood itself.
func (o Ordinal) Augmentation() Augmentation { return o }

// Width returns 1.
func (Ordinal) Width() int { return 1 }

// Held returns the number of gaps: u lies between thresholds.
func (o Ordinal) Held() int { return max(0, len(o.Classes)-2) }

// Start sets each u to its mean where f is in the middle of its class, all gaps being 1.
func (o Ordinal) Start(state, y []float64) {
	for i, v := range y {
		switch v {
		case 0:
			state[i] = -hazard(0)
		case float64(len(o.Classes) - 1):
			state[i] = float64(len(o.Classes)-2) + hazard(0)
		default:
			state[i] = v - 0.5
		}
	}
}

// Expect sets each u to its mean given f.
func (o Ordinal) Expect(state, theta, y, f []float64) {
	for i, v := range y {
		_, score, _ := o.LogDensity(theta, v, f[i])
		state[i] = f[i] + score
	}
}

// Refresh draws each u given f.
func (Ordinal) Refresh(r *rand.Rand, state, theta, y, f []float64) {
	b := thresholds(theta)
	for i, v := range y {
		state[i] = f[i] + truncatedNormal(r, b[int(v)]-f[i], b[int(v)+1]-f[i])
	}
}

// Targets returns u.
func (Ordinal) Targets(_, state []float64) []float64 { return state }

// Noise returns 1.
func (Ordinal) Noise(_, _ []float64) []float64 { return []float64{1} }

// NoiseGradient returns zeros.
func (Ordinal) NoiseGradient(theta, _ []float64) [][]float64 {
	out := make([][]float64, len(theta))
	for i := range out {
		out[i] = []float64{0}
	}
	return out
}

// Draw draws a class.
func (Ordinal) Draw(r *rand.Rand, theta []float64, mean, variance float64) float64 {
	u := mean + math.Sqrt(variance+1)*r.NormFloat64()
	b, c := thresholds(theta), 0
	for u > b[c+1] {
		c++
	}
	return float64(c)
}

// Predict returns the mean over the draws of the probabilities of the classes.
func (o Ordinal) Predict(theta [][]float64, mean, variance []float64) Predictive {
	out := Classes{make([]float64, len(o.Classes))}
	for t, own := range theta {
		b, sd := thresholds(own), math.Sqrt(1+variance[t])
		for c := range out.P {
			out.P[c] += math.Exp(logNormalBetween((b[c]-mean[t])/sd, (b[c+1]-mean[t])/sd)) / float64(len(theta))
		}
	}
	return out
}
