package report

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// Data that look like the replicates raise no doubt; skewed ones do, with the share of replicates
// that have as much.
func TestCheck(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	normal := func() []float64 {
		y := make([]float64, 300)
		for i := range y {
			y[i] = 5 + 2*r.NormFloat64()
		}
		return y
	}
	c := &Check{Target: "y", Of: 1000, Observed: normal()}
	for range 40 {
		c.Replicated = append(c.Replicated, normal())
	}
	if d := c.Doubts(); len(d) != 0 {
		t.Errorf("doubts of a model that is right: %q", d)
	}
	for _, s := range c.Statistics() {
		if s.Q5 > s.Q95 || s.P < 0 || s.P > 1+1e-12 {
			t.Errorf("%+v", s)
		}
		// The mean of 300 is 5 within 5 standard errors, and its central 90 % are ±1.645 of these, to a third.
		if se := 2 / math.Sqrt(300); s.Name == "mean" && (math.Abs(s.Observed-5) > 5*se || math.Abs((s.Q95-s.Q5)/(2*1.645*se)-1) > 0.34) {
			t.Errorf("%+v", s)
		}
	}
	for i := range c.Observed {
		c.Observed[i] = 3 + 2*r.ExpFloat64() // the same mean and sd
	}
	d := c.Doubts()
	if len(d) == 0 || !strings.Contains(strings.Join(d, "; "), "the skewness of the targets is") {
		t.Errorf("doubts of skewed data: %q", d)
	}
	for _, s := range c.Statistics() {
		if s.Name == "skewness" && s.P != 0 || s.Name == "smallest" && s.P != 0 {
			t.Errorf("%+v", s)
		}
	}
	rec := testRecord(t, false, 40)
	rec.Check = c
	page, _ := render(t, rec)
	for _, want := range []string{`<h2 id="check">`, "40 data sets that the fitted model makes of 300 of 1000 rows, at random", "skewness</th>", "<title>Posterior predictive check"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
}
