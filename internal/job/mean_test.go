package job

import (
	"fmt"
	"strings"
	"testing"
)

func TestMean(t *testing.T) {
	for mean, want := range map[string]string{
		"":                           "sigma*rbf(1-3:tau)",
		"none":                       "sigma*rbf(1-3:tau)",
		"constant":                   "sigma*rbf(1-3:tau)+=100*linear(0)",
		"linear":                     "sigma*rbf(1-3:tau)+=100*linear(0)+=100*linear(1)+=100*linear(2)+=100*linear(3)",
		`linear("wind speed", year)`: "sigma*rbf(1-3:tau)+=100*linear(0)+=100*linear(3)+=100*linear(1)",
		"linear(yaer)":               `model.mean: character 8: there is no input "yaer": did you mean "year"?`,
		"linear(year, ard)":          "model.mean: character 1: \"linear(year, ard)\" is no mean",
		"a: linear(year)":            "is no mean: use none, constant, linear",
		"rbf(year)":                  "is no mean",
		"linear(year":                "model.mean: character 12: the expression ends",
		"linear(year, centre=2)":     "is no mean",
	} {
		s, err := ParseString(fmt.Sprintf("name: m\ndata: {path: x.csv, target: y}\nmodel: {mean: %q}\n", mean))
		var got string
		if err == nil {
			if c, e := s.Covariance(weather); e == nil {
				got = c.String()
			} else {
				err = e
			}
		}
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("mean %q: %s, want %s", mean, got, want)
		}
	}
}

// Classes in order have a constant unless they are to have none, and a gap for each class between others.
func TestMeanOfClassesInOrder(t *testing.T) {
	info := *weather
	info.Classes = []string{"low", "mid", "high", "top"}
	for mean, want := range map[string]string{"": "sigma*rbf(1-3:tau)+=100*linear(0)", "mean: none, ": "sigma*rbf(1-3:tau)"} {
		s, err := ParseString("name: m\ndata: {path: x.csv, target: y}\nmodel: {" + mean + "likelihood: ordinal, priors: {\"gap[high]\": \"gamma(2,3)\"}}\n")
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.KernelModel(&info)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Covariance.String(); got != want {
			t.Errorf("mean %q: %s, want %s", mean, got, want)
		}
		priors, err := s.PriorsOf(&info)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(priors[2:]); got != "[{gap[mid] lognormal(0,1) } {gap[high] gamma(2,3) }]" {
			t.Errorf("priors %s", got)
		}
	}
}

// The mean's terms have names, and no parameters; what it is over is in the model.
func TestMeanBesideExpression(t *testing.T) {
	s, err := ParseString("name: m\ndata: {path: x.csv, target: y}\nmodel: {kernel: \"trend: rbf(year)\", mean: linear(hum)}\n")
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.KernelModel(weather)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range m.Covariance.Terms() {
		names = append(names, m.Covariance.TermName(i))
	}
	if got := strings.Join(names, " "); got != "trend mean mean_hum" {
		t.Errorf("terms %s", got)
	}
	if got := strings.Join(m.Names(), " "); got != "trend.variance trend.tau[1] lambda" {
		t.Errorf("parameters %s", got)
	}
	if h := s.Hints(weather); len(h) != 1 || strings.Contains(h[0], "hum") || !strings.Contains(h[0], "wind speed") {
		t.Errorf("hints %q", h)
	}
	if i := slopeOf("mean_hum", weather); !OfMean("mean_hum") || i != 1 {
		t.Errorf("mean_hum is of input %d", i)
	}
	if i := slopeOf("mean", weather); !OfMean("mean") || OfMean("meander") || i != -1 {
		t.Errorf("the constant is of input %d", i)
	}
	if _, err := ParseString("name: m\ndata: {path: x.csv, target: y}\nmodel: {kernel: \"mean_hum: rbf(year)\"}\n"); err == nil || !strings.Contains(err.Error(), "a term has the name mean_hum, as those of the mean have") {
		t.Errorf("error %v", err)
	}
}
