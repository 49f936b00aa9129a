package expression

import (
	"errors"
	"math"
	"strings"
	"testing"
)

var table = []Input{{Name: "year", SD: 10}, {Name: "temp", SD: 2}, {Name: "station", SD: 1, Levels: 3, LevelNames: []string{"A", "B", "C"}}, {Name: "day of week", SD: 1, Levels: 7}}

func TestLeaves(t *testing.T) {
	for _, x := range []struct{ text, canonical string }{
		{"rq(year)", "rq.variance*rq(1:rq.tau[1];rq.alpha)"},
		{"w: rq(year, temp, ard, alpha=0.5)", "w.variance*rq(1:w.tau[1],2:w.tau[2];=0.5)"},
		{"rq(year, lengthscale=2)*rbf(temp)", "rq_rbf.variance*rq(1:=12.5;rq_rbf.rq.alpha)*rbf(2:rq_rbf.rbf.tau[2])"},
		{"wendland(year, temp)", "wendland.variance*wendland(1-2:wendland.tau)"},
		{"wendland0(year, temp)", "wendland0.variance*wendland0(1-2:wendland0.tau)"},
		{"wendland2(year, temp, ard)", "wendland2.variance*wendland2(1:wendland2.tau[1],2:wendland2.tau[2])"},
		{"wendland(year, lengthscale=2)", "wendland.variance*wendland(1:=12.5)"},
		{"s: cosine(year, period=11) * rbf(year)", "s.variance*cosine(1:=11:10)*rbf(1:s.rbf.tau[1])"},
		{"s: cosine(year)", "s.variance*cosine(1:s.period:10)"},
		{"hamming(station)", "hamming.variance*hamming(3:hamming.tau[3])"},
		{`h: hamming(station, "day of week")`, "h.variance*hamming(3-4:h.tau)"},
		{`h: hamming("day of week", station, ard)`, "h.variance*hamming(4:h.tau[4])*hamming(3:h.tau[3])"},
		{"hamming(station, correlation=0.5)", "hamming.variance*hamming(3:=0.6931471805599453)"},
		{"f: coregion(station)", "f.variance*coregion(3:0:s:f:A,B,C)"},
		{"f: coregion(station, rank=1, scale=1) * rbf(year)", "f.variance*coregion(3:1:1:f.coregion:A,B,C)*rbf(1:f.rbf.tau[1])"},
		{"coregion(station) * (rbf(year) + linear(temp))", "coregion_rbf.variance*coregion(3:0:s:coregion_rbf.coregion:A,B,C)*rbf(1:coregion_rbf.rbf.tau[1])+coregion_linear.variance*coregion(3:0:s:coregion_rbf.coregion:A,B,C)*linear(2)"},
	} {
		e, err := Parse(x.text)
		if err != nil {
			t.Errorf("%s: %v", x.text, err)
			continue
		}
		c, err := e.Covariance(table)
		if err != nil {
			t.Errorf("%s: %v", x.text, err)
			continue
		}
		if got := c.String(); got != x.canonical {
			t.Errorf("%s is\n%s, want\n%s", x.text, got, x.canonical)
		}
		again, err := Parse(e.String())
		if err != nil || again.String() != e.String() {
			t.Errorf("%s is %v, which is read as %v: %v", x.text, e, again, err)
		}
	}
}

// What expressions are worth: with categories, by the formula.
func TestValuesOfLeaves(t *testing.T) {
	e, err := Parse(`rq(temp, alpha=2, lengthscale=3) * hamming(station, "day of week", ard) + wendland(year, lengthscale=5) * cosine(temp, period=7)`)
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.Covariance(table)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(c.Params().NamesBy([]string{"year", "temp", "station", "day"}), " "), "rq_hamming.variance rq_hamming.hamming.tau[station] rq_hamming.hamming.tau[day] wendland_cosine.variance"; got != want {
		t.Fatalf("parameters %s, want %s", got, want)
	}
	x, y := []float64{0.4, 1, 2, 5}, []float64{-0.3, 0.2, 2, 1} // 7 years and 1.6 degrees apart, another day
	r := 7 / (5 * math.Sqrt(12))
	want := 1.5*math.Pow(1+1.6*1.6/(2*2*9), -2)*math.Exp(-0.8) + 0.5*math.Pow(1-r, 3)*(1+3*r)*math.Cos(2*math.Pi*1.6/7)
	if got := c.At([]float64{1.5, 0.3, 0.8, 0.5}).Value(x, y); math.Abs(got-want) > 1e-14 {
		t.Errorf("k = %v, want %v", got, want)
	}
}

func TestMistakesOfLeaves(t *testing.T) {
	for text, want := range map[string]string{
		"rbf(year, station)":                     "character 11: the input station is a category, whose levels have no distances: write hamming(station) for it",
		`rq(year) + rq("day of week")`:           `character 15: the input day of week is a category, whose levels have no distances: write hamming("day of week") for it`,
		"rbf(year) + matern32":                   "character 13: without names matern32 is over all inputs: the input station is a category",
		"hamming(temp)":                          "character 9: hamming is over categories, and the input temp is of numbers: declare it by data.categories: [temp]",
		"rbf(temp) * hamming":                    "character 13: without names hamming is over all inputs: hamming is over categories, and the input year",
		"hamming(staton)":                        `character 9: there is no input "staton": did you mean "station"?`,
		"haming(station)":                        `character 1: there is no covariance "haming": did you mean hamming?`,
		"hamming(station, lengthscale=1)":        "character 18: hamming has no lengthscale: what can be fixed is correlation",
		"rbf(year) * coregion(temp)":             "character 22: coregion is over categories, and the input temp is of numbers: declare it by data.categories: [temp]",
		"rbf(year) * coregion(staton)":           `character 22: there is no input "staton": did you mean "station"?`,
		"coregio(station)":                       `character 1: there is no covariance "coregio": did you mean coregion?`,
		`coregion(station, "day of week")`:       "character 1: coregion is over one category, not 2: name it, as in coregion(station)",
		"coregion(station, ard)":                 "character 1: ard does not go with coregion",
		"coregion(station, rank=2)":              "character 1: the category station: a correlation matrix of 3 levels has 3 elements, fewer than the parameters of rank 2: leave the rank out",
		"coregion(station, rank=1.5)":            "character 1: rank is 1.5, but must be a whole number",
		"coregion(station, rank=1e300)":          "character 1: rank is 1e+300, but must be a whole number below",
		"coregion(station, scale=2)":             "character 1: scale is 2: of a coregion it is 1, one scale for all levels, or left out",
		"coregion(station, lengthscale=1)":       "character 19: coregion has no lengthscale: what can be fixed is rank, scale",
		"hamming(station, correlation=1)":        `character 30: correlation is "1", but must be below 1`,
		"hamming(station, correlation=-.5)":      `character 30: correlation is "-.5"`,
		"hamming(station, ard, correlation=0.5)": "ard is a correlation for each input",
		"rq(year, alpha=0)":                      `character 16: alpha is "0"`,
		"rbf(year, alpha=1)":                     "character 11: rbf has no alpha",
		"rq(year, period=1)":                     "character 10: rq has no period: what can be fixed is lengthscale, alpha",
		"cosine(year, temp)":                     "cosine is over one input, not 2: name it, as in cosine(year, period=1)",
		"cosine(year, ard)":                      "it does not go with cosine",
		"cosine(year, lengthscale=1)":            "character 14: cosine has no lengthscale",
		"a: rq(year) + b: rq(year)":              "character 15: the terms a and b are the same",
	} {
		e, err := Parse(text)
		if err == nil {
			_, err = e.Covariance(table)
		}
		var at *Error
		if !errors.As(err, &at) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A family over all inputs is told as an expression that can be read, and whose covariance there is.
func TestOfAll(t *testing.T) {
	for want, of := range map[string][]Input{
		`rbf(year, temp) * hamming(station, "day of week")`: table,
		"rbf(year)":        table[:1],
		"hamming(station)": table[2:3],
	} {
		got := OfAll("rbf", false, of)
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
		e, err := Parse(got)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Covariance(of); err != nil {
			t.Errorf("%s: %v", got, err)
		}
	}
	if got, want := OfAll("matern32", true, table[1:]), `matern32(temp, ard) * hamming(station, "day of week", ard)`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestHints(t *testing.T) {
	for text, want := range map[string]string{
		"rbf(year) * rbf(year)":                                   "has rbf twice over the same inputs",
		"rbf(year, temp, ard) * rbf(temp, year)":                  "has rbf twice over the same inputs",
		"hamming(station)*hamming(station)":                       "has hamming twice",
		"coregion(station)*rbf(year)*coregion(station)":           "has coregion twice",
		"coregion(station)":                                       "the term coregion has one value for each level",
		"coregion(station)*rbf(year)+hamming(station)":            "",
		"rbf(year) * matern32(year) * rbf(temp)":                  "",
		"rbf(year) * rbf(year, lengthscale=3)":                    "",
		"periodic(year, period=1) * periodic(year, period=2)":     "",
		"periodic(year, period=1) * periodic(year, period=1)":     "has periodic twice",
		"s: periodic(year, period=30) * rbf(year)":                "",
		"s: periodic(year, period=50) * rbf(year)":                "s has the period 50, and the standard deviation of year is 10",
		"rbf(temp) + rbf(temp)*cosine(temp, period=9)":            "rbf_cosine has the period 9",
		"matern32(year)*matern32(year)+periodic(year, period=11)": "",
	} {
		e, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(e.Hints(table), "; ")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: hints %q, want %q", text, got, want)
		}
	}
}
