// Package diagnostics says how far Markov chains can be trusted: rank-normalised
// split R-hat, bulk and tail effective sample size and Monte Carlo standard
// errors as in Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021) and in
// Stan's posterior package, and the potential scale reduction factor of Gelman
// and Rubin (1992) with its upper bound, as the seed paper reports it.
//
// Draws of one quantity come as chains[c][t], all chains of the same length.
// Functions return NaN where the quantity is not defined: fewer than four
// draws a chain, draws that are not finite, or draws that are all equal.
package diagnostics

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/dsp/fourier"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// RHat returns the rank-normalised split R-hat: the larger of that of the
// draws, sensitive to location, and of their folded values, sensitive to scale.
func RHat(chains [][]float64) float64 {
	if !valid(chains) {
		return math.NaN()
	}
	halves := split(chains)
	return max(rhat(normalScores(halves)), rhat(normalScores(folded(halves))))
}

// ESSBulk returns the effective sample size for the centre of the
// distribution, from rank-normalised split chains.
func ESSBulk(chains [][]float64) float64 {
	if !valid(chains) {
		return math.NaN()
	}
	return ess(normalScores(split(chains)))
}

// ESSTail returns the smaller effective sample size of the 5 % and the 95 %
// quantile.
func ESSTail(chains [][]float64) float64 {
	lo, hi := ESSQuantile(chains, 0.05), ESSQuantile(chains, 0.95)
	switch { // a quantile that all draws lie beyond says nothing
	case math.IsNaN(lo):
		return hi
	case math.IsNaN(hi):
		return lo
	}
	return min(lo, hi)
}

// ESSQuantile returns the effective sample size of the quantile of order p.
func ESSQuantile(chains [][]float64, p float64) float64 {
	if !valid(chains) {
		return math.NaN()
	}
	q := Quantile(flatten(chains), p)
	below := make([][]float64, len(chains))
	for c, x := range chains {
		below[c] = make([]float64, len(x))
		for t, v := range x {
			if v <= q {
				below[c][t] = 1
			}
		}
	}
	return ess(split(below))
}

// ESSMean returns the effective sample size of the mean.
func ESSMean(chains [][]float64) float64 {
	if !valid(chains) {
		return math.NaN()
	}
	return ess(split(chains))
}

// MAD returns the median absolute deviation from the median, times 1.4826: of
// normal draws, an estimate of the standard deviation.
func MAD(x []float64) float64 {
	mid := Quantile(x, 0.5)
	off := make([]float64, len(x))
	for i, v := range x {
		off[i] = math.Abs(v - mid)
	}
	return 1.4826 * Quantile(off, 0.5)
}

// MCSEMean returns the Monte Carlo standard error of the mean.
func MCSEMean(chains [][]float64) float64 {
	return stat.StdDev(flatten(chains), nil) / math.Sqrt(ESSMean(chains))
}

// MCSESD returns the Monte Carlo standard error of the standard deviation.
func MCSESD(chains [][]float64) float64 {
	if !valid(chains) {
		return math.NaN()
	}
	mean := stat.Mean(flatten(chains), nil)
	sq := make([][]float64, len(chains))
	var m2, m4, n float64
	for c, x := range chains {
		sq[c] = make([]float64, len(x))
		for t, v := range x {
			s := (v - mean) * (v - mean)
			sq[c][t] = s
			m2 += s
			m4 += s * s
			n++
		}
	}
	m2, m4 = m2/n, m4/n
	variance := (m4 - m2*m2) / ESSMean(sq)
	return math.Sqrt(variance / m2 / 4)
}

// PSRF returns the potential scale reduction factor of Gelman and Rubin (1992)
// with the correction for the degrees of freedom, and its upper bound at
// 97.5 %. It needs two chains or more.
func PSRF(chains [][]float64) (median, upper float64) {
	if !valid(chains) || len(chains) < 2 {
		return math.NaN(), math.NaN()
	}
	m, n := float64(len(chains)), float64(len(chains[0]))
	means, vars, squares := make([]float64, len(chains)), make([]float64, len(chains)), make([]float64, len(chains))
	for c, x := range chains {
		means[c], vars[c] = stat.MeanVariance(x, nil)
		squares[c] = means[c] * means[c]
	}
	w := stat.Mean(vars, nil)
	b := n * stat.Variance(means, nil)
	varW := stat.Variance(vars, nil) / m
	varB := 2 * b * b / (m - 1)
	covWB := n / m * (stat.Covariance(vars, squares, nil) - 2*stat.Mean(means, nil)*stat.Covariance(vars, means, nil))
	v := (n-1)*w/n + (1+1/m)*b/n
	varV := ((n-1)*(n-1)*varW + (1+1/m)*(1+1/m)*varB + 2*(n-1)*(1+1/m)*covWB) / (n * n)
	dfV := 2 * v * v / varV
	adjust := (dfV + 3) / (dfV + 1)
	fixed, between := (n-1)/n, (1+1/m)/n*b/w
	f := distuv.F{D1: m - 1, D2: 2 * w * w / varW}
	return math.Sqrt(adjust * (fixed + between)), math.Sqrt(adjust * (fixed + f.Quantile(0.975)*between))
}

// Quantile returns the quantile of order p, interpolated between order
// statistics (Hyndman and Fan's type 7, the default of R and NumPy).
func Quantile(x []float64, p float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	s := slices.Clone(x)
	slices.Sort(s)
	h := p * float64(len(s)-1)
	lo := int(math.Floor(h))
	hi := min(lo+1, len(s)-1)
	if s[lo] == s[hi] {
		return s[lo]
	}
	f := h - float64(lo) // as R rounds: the two draws beside a median are equally far from it
	return (1-f)*s[lo] + f*s[hi]
}

// Autocorrelation returns the autocorrelations of a chain at lags 0 to maxLag.
func Autocorrelation(x []float64, maxLag int) []float64 {
	acov := autocovariance(x)
	rho := slices.Clone(acov[:min(maxLag+1, len(acov))])
	floats.Scale(1/acov[0], rho)
	return rho
}

func valid(chains [][]float64) bool {
	if len(chains) == 0 || len(chains[0]) < 4 {
		return false
	}
	first, constant := chains[0][0], true
	for _, x := range chains {
		if len(x) != len(chains[0]) {
			panic("diagnostics: chains of different lengths")
		}
		for _, v := range x {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return false
			}
			constant = constant && v == first
		}
	}
	return !constant
}

func flatten(chains [][]float64) []float64 { return slices.Concat(chains...) }

// split cuts each chain into halves, without the middle draw of an odd one.
func split(chains [][]float64) [][]float64 {
	var halves [][]float64
	for _, x := range chains {
		h := len(x) / 2
		halves = append(halves, x[:h], x[len(x)-h:])
	}
	return halves
}

// folded returns |x − median|.
func folded(chains [][]float64) [][]float64 {
	med := Quantile(flatten(chains), 0.5)
	out := make([][]float64, len(chains))
	for c, x := range chains {
		out[c] = make([]float64, len(x))
		for t, v := range x {
			out[c][t] = math.Abs(v - med)
		}
	}
	return out
}

// normalScores replaces draws by the normal quantiles of their ranks among all
// chains, ties averaged, with Blom's offset 3/8.
func normalScores(chains [][]float64) [][]float64 {
	all := flatten(chains)
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case all[a] < all[b]:
			return -1
		case all[a] > all[b]:
			return 1
		}
		return a - b
	})
	scores := make([]float64, len(all))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && all[order[j]] == all[order[i]] {
			j++
		}
		rank := float64(i+1+j) / 2
		z := distuv.UnitNormal.Quantile((rank - 3.0/8) / (float64(len(all)) + 1.0/4))
		for ; i < j; i++ {
			scores[order[i]] = z
		}
	}
	out := make([][]float64, len(chains))
	for c, x := range chains {
		out[c], scores = scores[:len(x):len(x)], scores[len(x):]
	}
	return out
}

// rhat is the R-hat of chains as they are.
func rhat(chains [][]float64) float64 {
	n := float64(len(chains[0]))
	means, vars := make([]float64, len(chains)), make([]float64, len(chains))
	for c, x := range chains {
		means[c], vars[c] = stat.MeanVariance(x, nil)
	}
	within := stat.Mean(vars, nil)
	between := stat.Variance(means, nil)
	return math.Sqrt((n-1)/n + between/within)
}

// autocovariance returns the biased autocovariances at all lags.
func autocovariance(x []float64) []float64 {
	n := len(x)
	size := 1
	for size < 2*n {
		size *= 2
	}
	mean := stat.Mean(x, nil)
	pad := make([]float64, size)
	for i, v := range x {
		pad[i] = v - mean
	}
	fft := fourier.NewFFT(size)
	coeff := fft.Coefficients(nil, pad)
	for i, c := range coeff {
		coeff[i] = complex(real(c)*real(c)+imag(c)*imag(c), 0)
	}
	acov := fft.Sequence(nil, coeff)[:n]
	floats.Scale(1/(float64(size)*float64(n)), acov)
	return acov
}

// ess is the effective sample size of the mean of chains as they are, with
// Geyer's (1992) initial monotone sequence.
func ess(chains [][]float64) float64 {
	if !valid(chains) {
		return math.NaN()
	}
	m, n := len(chains), len(chains[0])
	acov := make([]float64, n) // mean over chains
	means := make([]float64, m)
	for c, x := range chains {
		floats.AddScaled(acov, 1/float64(m), autocovariance(x))
		means[c] = stat.Mean(x, nil)
	}
	nf := float64(n)
	within := acov[0] * nf / (nf - 1)
	total := acov[0]
	if m > 1 {
		total += stat.Variance(means, nil)
	}
	rhoAt := func(t int) float64 { return 1 - (within-acov[t])/total }

	rho := make([]float64, n)
	even, odd := 1.0, rhoAt(1)
	rho[0], rho[1] = even, odd
	t := 1
	for ; t < n-4 && even+odd > 0; t += 2 {
		even, odd = rhoAt(t+1), rhoAt(t+2)
		if even+odd >= 0 {
			rho[t+1], rho[t+2] = even, odd
		}
	}
	last := t - 2
	if even > 0 { // the last even term improves antithetic chains
		rho[last+1] = even
	}
	for t := 1; t <= last-2; t += 2 {
		if rho[t+1]+rho[t+2] > rho[t-1]+rho[t] {
			rho[t+1] = (rho[t-1] + rho[t]) / 2
			rho[t+2] = rho[t+1]
		}
	}
	size := float64(m * n)
	tau := -1 + 2*floats.Sum(rho[:max(0, last+1)]) + rho[last+1]
	return size / max(tau, 1/math.Log10(size))
}
