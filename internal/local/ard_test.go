package local

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// Fifty inputs with a length-scale each: 52 parameters from 150 rows, of which
// the data tell two. Chains that start two sds off in every direction come
// back, and the two relevant inputs stand out.
func TestFiftyLengthScales(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: some seconds to find the mode")
	}
	tau := slices.Repeat([]string{"0.002"}, 50)
	tau[0], tau[1] = "0.3", "0.3"
	r := run(t, config(t, spec(t, fmt.Sprintf(`
name: ard
data: {synthetic: {n: 150, d: 50, sigma: 1, tau: [%s], lambda: 0.1, seed: 3}, standardize: false}
model: {ard: true, priors: {tau: "lognormal(-4,1.5)"}}
sampler: {chains: 2, warmup: 20, draws: 20, checkpoint: 20}
solver: {preconditioner: {kind: rpcholesky}}
stop: {max_draws: 20}
`, strings.Join(tau, ","))), 2, t.TempDir()))
	relevant, most := math.Inf(1), math.Inf(-1)
	for i := range tau {
		mean, _ := moments(r.Column(1+i, 20))
		if i < 2 {
			relevant = min(relevant, mean)
		} else {
			most = max(most, mean)
		}
	}
	t.Logf("relevant inputs above %.2f, others below %.2f", relevant, most)
	if relevant < most {
		t.Errorf("log τ of the relevant inputs is %v, of others up to %v", relevant, most)
	}
}
