package job

import (
	"strings"
	"testing"
)

func TestDiffers(t *testing.T) {
	const text = "name: a\ndata: {path: a.csv, target: y}\nsampler: {step: 0.5, draws: 100}\nstop: {ess: 400, max_time: 1h}\nseed: 3\n"
	first, err := Parse(strings.NewReader(text), "")
	if err != nil {
		t.Fatal(err)
	}
	for change, want := range map[string]string{
		"seed: 3=>seed: 4":                                        "seed",
		"step: 0.5=>step: 0.6":                                    "sampler.step",
		"step: 0.5=>sgld: {a: 3}, step: 0.5":                      "sampler",
		"target: y=>target: z":                                    "data.target",
		"seed: 3=>solver: {preconditioner: {kind: svd}}\nseed: 3": "solver.preconditioner.kind",
		"seed: 3=>notify: {webhooks: ['https://a']}\nseed: 3":     "notify",
		"draws: 100=>draws: 200":                                  "",
		"ess: 400=>ess: 500, rhat: 1.1, max_draws: 9000":          "",
		"1h=>2h": "",
	} {
		from, to, _ := strings.Cut(change, "=>")
		second, err := Parse(strings.NewReader(strings.Replace(text, from, to, 1)), "")
		if err != nil {
			t.Fatal(change, err)
		}
		if got := second.Differs(first); got != want {
			t.Errorf("%s: %q, want %q", change, got, want)
		}
	}
}
