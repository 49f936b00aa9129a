package solve

import "math"

// PaperLaw is the law of Filippone and Engler (2015): w_j = exp(j/β). (Their
// text says exp(βj), their Figure 3 can only be exp(j/β); β = 1, which they
// use for SGLD, is the same in both.)
type PaperLaw struct{ Beta float64 }

// Prob returns exp(−j/β).
func (l PaperLaw) Prob(j int, _ []Step) float64 { return math.Exp(-float64(j) / l.Beta) }

// GeometricLaw continues with a constant probability.
type GeometricLaw struct{ P float64 }

// Prob returns P.
func (l GeometricLaw) Prob(int, []Step) float64 { return l.P }

// DecayLaw continues with the mean ratio of the last steps' lengths ‖δ‖: with
// survival probabilities S_j the variance of the tail is about Σ‖δ_j‖²/S_j and
// its cost Σ S_j, which is best if S_j ∝ ‖δ_j‖. It stays within
// [MinProb, MaxProb].
type DecayLaw struct{ MinProb, MaxProb float64 }

// lawWindow is the number of steps that laws average over: CG's steps are
// erratic one by one.
const lawWindow = 10

// Prob returns the mean decay of the last steps.
func (l DecayLaw) Prob(_ int, steps []Step) float64 {
	m := len(steps) - 1
	k := min(lawWindow, m)
	p := l.MaxProb
	if k > 0 && steps[m-k].Norm > 0 {
		p = math.Pow(steps[m].Norm/steps[m-k].Norm, 1/float64(k))
	}
	return min(max(p, l.MinProb), l.MaxProb)
}

// OptimalLaw minimises the variance for its cost. The steps of CG are
// K-conjugate, preconditioned or not, so that the variance of the estimate is,
// without cross terms,
//
//	E‖x̃ − x‖²_K = Σ_j ‖δ_j‖²_K (1/S_j − 1),
//
// against a cost of ΣS_j steps. The least variance for a cost has
// S_j = min(1, s·‖δ_j‖_K) with one s for all j. Here s·‖δ_0‖_K = 1: the step
// with which the tail begins. The lengths ahead are not known when the decision
// is due; they are extrapolated from the last ones, log-linearly. No step is
// taken with a probability below MinProb, which bounds the weights, or above
// maxProb, so that the tail can end anywhere.
type OptimalLaw struct{ MinProb float64 }

const maxProb = 0.999

// Prob returns S_j/S_{j−1}.
func (l OptimalLaw) Prob(j int, steps []Step) float64 {
	first := len(steps) - j // tail step 0
	ref := math.Log(max(steps[first].Energy, math.SmallestNonzeroFloat64))
	if first > 0 {
		ref = max(ref, forecast(steps[:first]))
	}
	survival, p := 0.0, 0.0 // logs
	for i := 1; i <= j; i++ {
		next := min(survival, forecast(steps[:first+i])-ref)
		p = min(math.Log(maxProb), max(next-survival, math.Log(l.MinProb)))
		survival += p
	}
	return math.Exp(p)
}

// forecast extrapolates the log energy of the step after the given ones by a
// straight line through the last of them.
func forecast(steps []Step) float64 {
	k := min(lawWindow, len(steps))
	last := steps[len(steps)-k:]
	var mean, slope, square float64
	for i, s := range last {
		t := float64(i) - float64(k-1)/2
		e := math.Log(max(s.Energy, math.SmallestNonzeroFloat64))
		mean += e / float64(k)
		slope += t * e
		square += t * t
	}
	if k > 1 {
		mean += min(0, slope/square) * float64(k+1) / 2
	}
	return mean
}
