package job

import (
	"slices"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
)

// severalInfo describes data of two inputs.
func severalInfo(classes ...string) *dataset.Info {
	return &dataset.Info{Rows: 10, Target: "y", InputNames: []string{"x", "z"}, Classes: classes, YScale: dataset.Scale{SD: 3},
		XScale: []dataset.Scale{{SD: 2}, {SD: 1}}}
}

// The log variance has a covariance of its own, whose parameters are named apart and have priors, in units that are not the target's.
func TestLogVariance(t *testing.T) {
	for text, want := range map[string]string{
		"": "sigma tau log_variance.variance log_variance.tau lambda",
		", noise: {log_variance: matern32}, mean: linear(x)":                              "sigma tau log_variance.variance log_variance.tau lambda",
		", noise: {log_variance: \"rbf(x)\"}":                                             "sigma tau log_variance.variance log_variance.tau[1] lambda",
		", noise: {log_variance: \"rbf(x) + slow: rq(z)\"}, kernel: \"a: linear(x)\"":     "a.variance log_variance_rbf.variance log_variance_rbf.tau[1] log_variance_slow.variance log_variance_slow.tau[2] log_variance_slow.alpha lambda",
		", priors: {log_variance.signal_sd: \"halfnormal(1)\", signal_sd: \"pc(3,0.1)\"}": "sigma tau log_variance.variance log_variance.tau lambda",
	} {
		s, err := Parse(strings.NewReader("name: t\ndata: {path: t.csv, target: y}\nmodel: {likelihood: heteroscedastic"+text+"}\n"), "s.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if s.Sampler.Method != "elliptical" {
			t.Errorf("%s: the method is %s", text, s.Sampler.Method)
		}
		d := severalInfo()
		m, err := s.KernelModel(d)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(m.Names(), " "); got != want {
			t.Errorf("%s: parameters %s, want %s", text, got, want)
		}
		// Each term is of one function, those of the log variance of the second.
		var all []int
		for c, terms := range m.Terms {
			for _, term := range terms {
				if s.Model.second().has(m.Covariance.TermName(term)) != (c == 1) {
					t.Errorf("%s: term %s is of function %d", text, m.Covariance.TermName(term), c)
				}
				all = append(all, term)
			}
		}
		slices.Sort(all)
		if len(m.Terms) != 2 || len(all) != len(m.Covariance.Terms()) || len(slices.Compact(all)) != len(all) {
			t.Errorf("%s: the functions have the terms %v", text, m.Terms)
		}
		if strings.Contains(text, "halfnormal") {
			priors, err := s.PriorsOf(d)
			if err != nil || !slices.ContainsFunc(priors, func(p PriorOf) bool { return p.Quantity == "log_variance.signal_sd" && p.Prior == "halfnormal(1)" }) {
				t.Errorf("priors %v, %v", priors, err)
			}
		}
	}
}

// A gate has a covariance of its own, and the likelihood its parameters, with priors of their own.
func TestGate(t *testing.T) {
	for text, want := range map[string]string{
		"likelihood: twinned": "sigma tau gate.variance gate.tau lambda outlier_scale outlier_share",
		"likelihood: twinned, noise: {gate: \"rbf(x)\"}, priors: {gate.signal_sd: \"halfnormal(2)\", outlier_scale: \"uniform(2,20)\", outlier_share: \"beta(1,9)\"}": "sigma tau gate.variance gate.tau[1] lambda outlier_scale outlier_share",
		"likelihood: noisy-labels, noise: {gate: \"near: matern32(x) + rbf(z)\"}, priors: {random_share: \"uniform(0,0.5)\"}":                                         "sigma tau gate_near.variance gate_near.tau[1] gate_rbf.variance gate_rbf.tau[2] random_share",
	} {
		s, err := Parse(strings.NewReader("name: t\ndata: {path: t.csv, target: y}\nmodel: {"+text+"}\n"), "s.yaml")
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.KernelModel(severalInfo("no", "yes"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(m.Names(), " "); got != want || s.Sampler.Method != "elliptical" || m.Functions() != 2 {
			t.Errorf("%s: %d functions, method %s, parameters %s, want %s", text, m.Functions(), s.Sampler.Method, got, want)
		}
		for c, terms := range m.Terms {
			for _, term := range terms {
				if strings.HasPrefix(m.Covariance.TermName(term), "gate") != (c == 1) {
					t.Errorf("%s: term %s is of function %d", text, m.Covariance.TermName(term), c)
				}
			}
		}
	}
}

// Of classes each has a latent function, with the one covariance and its parameters; a target's classes can be named.
func TestCategorical(t *testing.T) {
	s, err := Parse(strings.NewReader("name: t\ndata: {path: t.csv, target: y, levels: {y: [a, b, c]}}\nmodel: {likelihood: categorical}\n"), "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.KernelModel(severalInfo("a", "b", "c"))
	if err != nil {
		t.Fatal(err)
	}
	if m.Functions() != 3 || strings.Join(m.Names(), " ") != "sigma tau" || s.LatentFunctions() != 3 {
		t.Errorf("%d functions, parameters %s, %d functions before there are data", m.Functions(), m.Names(), s.LatentFunctions())
	}
	if got := s.PlanOf(m.Names(), 10, m.Functions()).Latent; got != 24+8*30 {
		t.Errorf("a chain carries %d bytes", got)
	}
	if expected, _ := s.Tells(severalInfo("a", "b", "c")); expected != "P(y)" {
		t.Errorf("what is predicted is %s", expected)
	}
	if _, ok := s.Model.Conditional().(likelihood.Categorical); !ok {
		t.Error("it is another likelihood")
	}
}

// More values of latent functions than matrices have room for are refused, before anything is computed.
func TestTooManyFunctions(t *testing.T) {
	const n = 4000
	s, err := Parse(strings.NewReader("name: t\ndata: {path: t.csv, target: y}\nmodel: {likelihood: categorical}\n"), "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	table := &dataset.Table{Target: "y", Inputs: []string{"x"}, X: [][]float64{make([]float64, n)}, Y: make([]float64, n), Classes: []string{"a", "b", "c"}}
	for i := range n {
		table.X[0][i], table.Y[i] = float64(i), float64(i%3)
	}
	d, err := s.Dataset(table)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Problem(d); err == nil || !strings.Contains(err.Error(), "3 latent functions at all rows, of which there are 4000: at most 10000 values, so 3333 rows") {
		t.Error(err)
	}
}
