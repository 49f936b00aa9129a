package diagnostics

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// PSIS smooths importance weights: the largest are replaced by quantiles of a
// generalised Pareto distribution fitted to them (Vehtari, Simpson, Gelman, Yao
// and Gabry, Pareto smoothed importance sampling, JMLR 2024). It returns the
// normalised weights and k̂, the shape of the fit: up to 0.7 the estimates can
// be trusted, above they cannot. k̂ is NaN for fewer than 25 weights, whose tail
// is too short to be fitted, and +Inf where nearly all weights are 0: then nothing is
// smoothed.
func PSIS(logWeights []float64) (weights []float64, khat float64) {
	n := len(logWeights)
	lw := slices.Clone(logWeights)
	floats.AddConst(-floats.Max(lw), lw)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case lw[a] < lw[b]:
			return -1
		case lw[a] > lw[b]:
			return 1
		}
		return 0
	})
	khat = math.NaN()
	tail := int(math.Ceil(min(0.2*float64(n), 3*math.Sqrt(float64(n)))))
	if tail >= 5 {
		cut := math.Exp(lw[order[n-tail-1]])
		x := make([]float64, tail)
		for i := range x {
			x[i] = math.Exp(lw[order[n-tail+i]]) - cut
		}
		if x[0] < x[tail-1] { // equal weights have no tail
			var scale float64
			if khat, scale = paretoFit(x); math.IsNaN(khat) || math.IsNaN(scale) {
				khat, x = math.Inf(1), nil
			}
			for i := range x {
				q := (float64(i) + 0.5) / float64(tail)
				v := -scale * math.Log1p(-q)
				if math.Abs(khat) > 1e-12 {
					v = scale * math.Expm1(-khat*math.Log1p(-q)) / khat
				}
				lw[order[n-tail+i]] = min(0, math.Log(v+cut))
			}
		} else {
			khat = math.Inf(-1)
		}
	}
	total := floats.LogSumExp(lw)
	weights = make([]float64, n)
	for i := range weights {
		weights[i] = math.Exp(lw[i] - total)
	}
	return weights, khat
}

// TailShare returns the share of a sum of many independent terms, given by logs, that terms larger than the largest of
// these may hold: what is expected of one, by the generalised Pareto distribution of the largest terms (as of PSIS). The sum of
// nearly equal terms, or of terms whose tail is light, has a share of about the largest one's. With a shape near 1 or above
// there is no expectation, and the share is 1. NaN for fewer than 25 terms.
func TailShare(logs []float64) float64 {
	n := len(logs)
	tail := int(math.Ceil(min(0.2*float64(n), 3*math.Sqrt(float64(n)))))
	if tail < 5 {
		return math.NaN()
	}
	x := slices.Clone(logs)
	floats.AddConst(-floats.LogSumExp(x), x)
	slices.Sort(x)
	for i, v := range x {
		x[i] = math.Exp(v)
	}
	cut, most := x[n-tail-1], x[n-1]
	x = x[n-tail:]
	floats.AddConst(-cut, x)
	if !(x[0] < x[tail-1]) {
		return most
	}
	shape, scale := paretoFit(x)
	if math.IsNaN(shape) || math.IsNaN(scale) || shape >= 1 {
		return 1
	}
	shape = max(shape, 0)
	return min(1, most+(scale+shape*(most-cut))/(1-shape))
}

// paretoFit fits a generalised Pareto distribution to x ≥ 0, sorted, by the
// quasi-Bayesian estimate of Zhang and Stephens (Technometrics 2009), the shape
// drawn towards ½ by a prior that counts as ten observations.
func paretoFit(x []float64) (shape, scale float64) {
	n := len(x)
	const prior, weight = 3.0, 10.0
	m := 30 + int(math.Sqrt(float64(n)))
	quarter := x[int(float64(n)/4+0.5)-1]
	meanLog := func(theta float64) float64 {
		var s float64
		for _, v := range x {
			s += math.Log1p(-theta * v)
		}
		return s / float64(n)
	}
	theta, like := make([]float64, m), make([]float64, m)
	for j := range theta {
		theta[j] = 1/x[n-1] + (1-math.Sqrt(float64(m)/(float64(j)+0.5)))/(prior*quarter)
		k := meanLog(theta[j])
		like[j] = float64(n) * (math.Log(-theta[j]/k) - k - 1)
	}
	total := floats.LogSumExp(like)
	var hat float64
	for j := range theta {
		hat += theta[j] * math.Exp(like[j]-total)
	}
	shape = meanLog(hat)
	scale = -shape / hat
	return (shape*float64(n) + 0.5*weight) / (float64(n) + weight), scale
}
