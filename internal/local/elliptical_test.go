package local

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
)

// Elliptical slices around Laplace's approximation have the posterior of the long run of other samplers, as
// TestAugmentedAgainstOracle asks, and the bits of their draws do not depend on cores and interruptions.
func TestEllipticalAgainstOracle(t *testing.T) {
	againstOracle(t, "elliptical", []string{"poisson", "negative-binomial"}, 400)
}

// So have chains of ψ alone, with the latent function integrated out around expectation propagation.
func TestPseudoMarginalAgainstOracle(t *testing.T) {
	againstOracle(t, "pseudo-marginal", []string{"bernoulli"}, 300)
}

// againstOracle compares a method for log-concave likelihoods: under all of them where everyLikelihood is set, else under some.
func againstOracle(t *testing.T, method string, some []string, draws int) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow: seconds of all cores")
	}
	oracles := map[string]*found{}
	text, err := os.ReadFile(oracleFile)
	if err == nil {
		err = json.Unmarshal(text, &oracles)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"poisson", "negative-binomial", "stochastic-volatility", "bernoulli", "binomial", "ordinal"} {
		if method == "pseudo-marginal" && name == "stochastic-volatility" { // which it does not take
			continue
		}
		c := augmentedCases[slices.IndexFunc(augmentedCases, func(c augmentedCase) bool { return c.name == name })]
		if !slices.Contains(some, name) && os.Getenv(everyLikelihood) == "" {
			continue
		}
		trials := ""
		if c.trials != nil {
			trials = ", trials: m"
		}
		table := c.table(t)
		of := func(chains, draws, warmup int) string {
			return fmt.Sprintf(`
name: test
data: {path: %s, target: y, inputs: [x]%s}
model: %s
sampler: {method: %s, chains: %d, draws: %d, warmup: %d, checkpoint: 20}
stop: {max_draws: %[6]d}
`, table, trials, c.model, method, chains, draws, warmup)
		}
		want := oracles[name]
		r := run(t, config(t, spec(t, of(4, draws, 100)), 2, t.TempDir()))
		for i, parameter := range r.Plan.Names {
			x := r.Column(i, r.MinDraws())
			m, sd := moments(x)
			t.Logf("%s: log %s is %.3f ± %.3f (ESS %.0f), oracle %.3f ± %.3f (errors %.3f, %.3f)", name, parameter, m, sd, diagnostics.ESSBulk(x), want.Mean[i], want.SD[i], want.MeanError[i], want.SDError[i])
			if e := 4 * math.Hypot(diagnostics.MCSEMean(x), want.MeanError[i]); math.Abs(m-want.Mean[i]) > 0.1*want.SD[i]+e {
				t.Errorf("%s: mean of log %s %v, oracle %v", name, parameter, m, want.Mean[i])
			}
			if e := 4 * math.Hypot(diagnostics.MCSESD(x), want.SDError[i]); math.Abs(sd-want.SD[i]) > 0.1*want.SD[i]+e {
				t.Errorf("%s: sd of log %s %v, oracle %v", name, parameter, sd, want.SD[i])
			}
		}
		if method == "elliptical" && name == "poisson" {
			sameDraws(t, spec(t, of(2, 25, 10)))
		}
	}
}
