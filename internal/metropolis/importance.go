package metropolis

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
)

// Weighted are draws with importance weights.
type Weighted struct {
	X    [][]float64
	W    []float64 // sum 1, the largest smoothed
	KHat float64   // up to 0.7 the weights can be trusted
	ESS  float64   // 1/Σw²
	// LogConstant is the log of the target's normalising constant, from the weights as they
	// are; Error is its standard error.
	LogConstant, Error float64
}

// Weigh returns the proposals with Pareto smoothed importance weights
// (diagnostics.PSIS). A target of +Inf is an error: there the density is not what its owner
// believes.
func Weigh(p *Proposals) (*Weighted, error) {
	if i := slices.Index(p.Target, math.Inf(1)); i >= 0 {
		return nil, fmt.Errorf("the log density of the target is infinite at %.4g", p.X[i])
	}
	logW := p.LogWeights()
	most := math.Inf(-1)
	for _, w := range logW {
		most = max(most, w)
	}
	if math.IsInf(most, 0) {
		return nil, errors.New("no proposal has a density under the target")
	}
	out := &Weighted{X: p.X}
	out.W, out.KHat = diagnostics.PSIS(logW)
	out.ESS = 1 / floats.Dot(out.W, out.W)
	raw := make([]float64, len(logW))
	for i, w := range logW {
		raw[i] = math.Exp(w - most)
	}
	mean, sd := stat.MeanStdDev(raw, nil)
	out.LogConstant = most + math.Log(mean)
	out.Error = sd / mean / math.Sqrt(float64(len(raw)))
	return out, nil
}

// Bridge returns the log of the normalising constant of a target, by the optimal bridge
// between draws of the target and of a normalised proposal distribution (Meng and Wong,
// Statistica Sinica 1996), and its standard error (Frühwirth-Schnatter, Econometrics
// Journal 2004). drawn are draws of the target, in the order of a chain if they come from
// one: their autocorrelation enters the error. Both lists hold log densities of the target,
// up to the constant asked for, and of the proposal. Unlike importance sampling it needs no
// proposal that is heavier in the tails.
func Bridge(drawn, proposed *Proposals) (logConstant, standardError float64) {
	fromTarget, fromProposal := drawn.LogWeights(), proposed.LogWeights()
	ess := diagnostics.ESSMean([][]float64{fromTarget})
	if math.IsNaN(ess) {
		ess = float64(len(fromTarget))
	}
	ess = min(ess, float64(len(fromTarget)))
	n2 := float64(len(fromProposal))
	s1, s2 := ess/(ess+n2), n2/(ess+n2)
	// In units that keep the exponentials in range; weights relative to the constant r.
	unit := floats.LogSumExp(fromProposal) - math.Log(n2)
	logR := 0.0
	above, below := make([]float64, len(fromProposal)), make([]float64, len(fromTarget))
	for range 1000 {
		for j, l := range fromProposal { // p/(s1·p + s2·r·q)
			above[j] = 1 / (s1 + s2*math.Exp(logR-(l-unit)))
		}
		for i, l := range fromTarget { // q/(s1·p + s2·r·q)
			below[i] = 1 / (s1*math.Exp(l-unit-logR) + s2)
		}
		next := math.Log(stat.Mean(above, nil)) - math.Log(stat.Mean(below, nil)) + logR
		moved := math.Abs(next - logR)
		logR = next
		if moved < 1e-12*(1+math.Abs(logR)) {
			break
		}
	}
	variance := func(x []float64, size float64) float64 {
		mean, sd := stat.MeanStdDev(x, nil)
		return sd * sd / (mean * mean * size)
	}
	essBelow := diagnostics.ESSMean([][]float64{below})
	if math.IsNaN(essBelow) {
		essBelow = ess
	}
	return unit + logR, math.Sqrt(variance(above, n2) + variance(below, min(essBelow, float64(len(below)))))
}
