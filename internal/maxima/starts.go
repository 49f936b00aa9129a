package maxima

import (
	"math"
	"math/rand/v2"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// The broad starts: log τ is N(rateMean, rateSD²), and so on. Of 40 such starts on 1,030
// rows of eight inputs, 4 came to a mode of a few percent of the mass far from the main
// one, which neither subsets of the rows nor moves from the main mode found.
const (
	rateMean, rateSD         = -2, 1.5
	varianceMean, varianceSD = 0.5, 1
	noiseMean, noiseSD       = -2, 1.5
)

// Starts returns where to begin climbs on the density of the sampled scale of the given
// parameters, of standardised data: first the classic ones, then broad random ones, count in
// all. stream returns the stream of random numbers of a start. Places of changes, of which densities have
// many maxima, are drawn from their prior but for the first start.
//
// The classic ones are little noise with moderate length-scales, and the pair that small
// data cannot tell apart: much noise with long length-scales, hardly any noise with short
// ones.
func Starts(params param.List, count int, stream func(index int) *rand.Rand) [][]float64 {
	classic := []struct{ variance, rate, noise float64 }{{1, 0.5, 0.1}, {1, 0.05, 0.5}, {1, 5, 0.01}}
	starts := make([][]float64, count)
	for s := range starts {
		starts[s] = make([]float64, len(params))
		r := stream(s)
		for i, p := range params {
			switch role := p.Role; {
			case role == param.Place && s > 0:
				starts[s][i] = p.Prior.Sample(r)
			case role != param.Variance && role != param.Rate && role != param.Noise: // of which the prior says more than any guess
				starts[s][i] = p.Scale().Sampled(p.Prior.Typical())
			case s < len(classic):
				starts[s][i] = math.Log(map[param.Role]float64{
					param.Variance: classic[s].variance, param.Rate: classic[s].rate / float64(max(1, len(p.Inputs))), param.Noise: classic[s].noise,
				}[role])
			case role == param.Rate:
				starts[s][i] = rateMean + rateSD*r.NormFloat64()
			case role == param.Variance:
				starts[s][i] = varianceMean + varianceSD*r.NormFloat64()
			default:
				starts[s][i] = noiseMean + noiseSD*r.NormFloat64()
			}
		}
	}
	return starts
}
