package expression

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/param"
)

var inputs = []Input{{Name: "year", Mean: 1990, SD: 10}, {Name: "temp", SD: 2}, {Name: "wind speed", SD: 0.5}}

func covariance(t testing.TB, text string) *kernel.Covariance {
	t.Helper()
	e, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.Covariance(inputs)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCovariance(t *testing.T) {
	for _, x := range []struct{ text, canonical string }{
		{"trend: rbf(year)", "trend.variance*rbf(1:trend.tau[1])"},
		{"rbf", "rbf.variance*rbf(1-3:rbf.tau)"},
		{"rbf(ard)", "rbf.variance*rbf(1:rbf.tau[1],2:rbf.tau[2],3:rbf.tau[3])"},
		{`matern32(temp, "wind speed") + matern32(year)`, "matern32.variance*matern32(2-3:matern32.tau)+matern32_2.variance*matern32(1:matern32_2.tau[1])"},
		{"season: periodic(year, period=1) * rbf(year)", "season.variance*periodic(1:season.periodic.tau:=1:10)*rbf(1:season.rbf.tau[1])"},
		{"p: periodic(temp)", "p.variance*periodic(2:p.tau:p.period:2)"},
		// 1/(2·2²) with the input in units of 10, and in those of all inputs.
		{"rbf(year, lengthscale=2)", "rbf.variance*rbf(1:=12.5)"},
		{"rbf(lengthscale=2)*matern12(temp)", "rbf_matern12.variance*rbf(1-3:=0.125)*matern12(2:rbf_matern12.matern12.tau[2])"},
		{"periodic(year,period=1,lengthscale=0.5)", "periodic.variance*periodic(1:=2:=1:10)"},
		{"a:rbf(year)*rbf(temp)", "a.variance*rbf(1:a.rbf.tau[1])*rbf(2:a.rbf_2.tau[2])"},
		{"s: (rbf(year) + b: rbf(temp)) * matern32", "s_1.variance*rbf(1:s_1.rbf.tau[1])*matern32(1-3:s.matern32.tau)+s_b.variance*rbf(2:s_b.rbf.tau[2])*matern32(1-3:s.matern32.tau)"},
		{"(rbf(year) + rbf(temp)) * matern32", "rbf_matern32.variance*rbf(1:rbf_matern32.rbf.tau[1])*matern32(1-3:rbf_matern32.matern32.tau)+rbf_matern32_2.variance*rbf(2:rbf_matern32_2.rbf.tau[2])*matern32(1-3:rbf_matern32.matern32.tau)"},
		{"linear", "linear.variance*linear(1,2,3)"},
		{"linear(year, centre=1985)*rbf(temp)+constant", "linear_rbf.variance*linear(1:-0.5)*rbf(2:linear_rbf.rbf.tau[2])+constant.variance*linear(0)"},
		{"sigmoid(year, at=1995, width=2)*rbf(temp)", "sigmoid_rbf.variance*sigmoid(1:0.5:0.2)*rbf(2:sigmoid_rbf.rbf.tau[2])"},
		{"sigmoid(year, falling, at=1990, width=5)", "sigmoid.variance*sigmoid(1:0:-0.5)"},
		{"polynomial(year, temp)", "polynomial.variance*polynomial(1,2:2:polynomial.offset)"},
		{"polynomial(year, temp, offset=1)", "polynomial.variance*polynomial(1,2:2:1)"},
		{"level: sigmoid(year)", "level.variance*sigmoid(1:level.place:level.width:1990:10)"},
		{"level: sigmoid(year, at=1970, falling)*rbf(temp)", "level.variance*sigmoid(1:=1970:level.sigmoid.width:1990:10:falling)*rbf(2:level.rbf.tau[2])"},
		{"a: sigmoid(year, at=dam, falling)*rbf(temp) + b: sigmoid(year, at=dam)*matern32(temp) + c: sigmoid(year, at=dam, width=2)",
			"a.variance*sigmoid(1:dam.place:dam.width:1990:10:falling)*rbf(2:a.rbf.tau[2])+b.variance*sigmoid(1:dam.place:dam.width:1990:10)*matern32(2:b.matern32.tau[2])+c.variance*sigmoid(1:dam.place:=2:1990:10)"},
		// From −4 to 6 and −5 to 5 standard deviations about the means, of 2 and 10.
		{"w: matern52(warp(temp, from=-8, to=12), year, ard)", "w.variance*warped(matern52(2:w.tau[2],1:w.tau[1]);2:w.warp_a[2]:w.warp_b[2]:-4:6)"},
		{"rq(warp(year, to=2040, from=1940, b=1), temp, alpha=2)*rbf(warp(year, from=1940, to=2040, a=2, b=0.5), lengthscale=5)",
			"rq_rbf.variance*warped(rq(1-2:rq_rbf.rq.tau;=2);1:rq_rbf.rq.warp_a[1]:=1:-5:5)*warped(rbf(1:=2);1:=2:=0.5:-5:5)"},
		{"polynomial(degree=3, offset=0)", "polynomial.variance*polynomial(1,2,3:3:0)"},
		{"linear(temp, year, ard)", "linear_temp.variance*linear(2)+linear_year.variance*linear(1)"},
		{`slope: linear("wind speed", year, ard)`, "slope_1.variance*linear(3)+slope_linear_year.variance*linear(1)"},
	} {
		if got := covariance(t, x.text).String(); got != x.canonical {
			t.Errorf("%s is\n%s, want\n%s", x.text, got, x.canonical)
		}
	}
}

// What a covariance is worth, by the formula, with inputs in units of their standard deviations.
func TestValue(t *testing.T) {
	c := covariance(t, "trend: rbf(year) + season: periodic(year, period=3) * matern12(temp)")
	if got, want := strings.Join(c.Params().Names(), " "), "trend.variance trend.tau[1] season.variance season.periodic.tau season.matern12.tau[2]"; got != want {
		t.Fatalf("parameters %s, want %s", got, want)
	}
	if got, want := strings.Join(c.Params().NamesBy([]string{"year", "temp", "w"}), " "), "trend.variance trend.tau[year] season.variance season.periodic.tau season.matern12.tau[temp]"; got != want {
		t.Fatalf("parameters %s, want %s", got, want)
	}
	x, y := []float64{0.4, 1, 0}, []float64{-0.3, 0.2, 5}
	sin := math.Sin(math.Pi * 7 / 3) // 0.7 of 10 years
	want := 2*math.Exp(-0.5*0.49) + 3*math.Exp(-4*0.8*sin*sin)*math.Exp(-math.Sqrt(2*0.3*0.64))
	if got := c.At([]float64{2, 0.5, 3, 0.8, 0.3}).Value(x, y); math.Abs(got-want) > 1e-14 {
		t.Errorf("k = %v, want %v", got, want)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                 "character 1: the expression ends where",
		"rbf(year) +":                                      "character 12: the expression ends where",
		"rbf(year) + rbg(temp)":                            `character 13: there is no covariance "rbg": did you mean rbf?`,
		"rbf(year) temp":                                   `character 11: want +, * or the end, not "temp"`,
		"rbf(yaer)":                                        `character 5: there is no input "yaer": did you mean "year"?`,
		"rbf(nothing)":                                     `character 5: there is no input "nothing": the inputs are year, temp, wind speed`,
		"rbf(wind speed)":                                  "character 10: want a comma or ), not \"speed\"",
		"rbf(year, year)":                                  "character 11: the input year is given twice",
		"rbf(year, period=1)":                              "character 11: rbf has no period",
		"rbf(year, lengthscale=-1)":                        `character 23: lengthscale is "-1"`,
		"rbf(year, lengthscale=x)":                         `character 23: lengthscale is "x"`,
		"periodic(period=1)":                               "periodic is over one input, not 3",
		"periodic(year, ard, period=1)":                    "it does not go with periodic",
		"rbf(ard, lengthscale=1)":                          "it does not go with one that is fixed",
		"(rbf(year) + rbf(temp)":                           "character 23: the expression ends where",
		"a: rbf(year) + a: rbf(temp)":                      "character 16: two terms have the name a",
		"a: rbf(year) + b: rbf(year)":                      "character 16: the terms a and b are the same",
		"rbf*matern32 + matern32*rbf":                      "are the same",
		`rbf("year)`:                                       "character 5: the quotes are not closed",
		"rbf(year) * 2":                                    `character 13: want a leaf such as rbf(x), not "2"`,
		"größe: rbf(year)":                                 `character 1: "größe" is no name for a term`,
		"rbf(year, lengthscale=1, lengthscale=2)":          "given twice",
		strings.Repeat("(", 50) + "rbf":                    "brackets in more than",
		strings.Repeat("(rbf+rbf)*", 10) + "rbf":           "too large",
		strings.Repeat("rbf+", 101) + "rbf":                "too large",
		"rbf(year)" + strings.Repeat(" ", maxText):         "bytes",
		"constant(year)":                                   "character 1: constant is the same everywhere",
		"constant(period=1)":                               "character 10: constant has no period",
		"rbf(year) + linear(ard)":                          "character 13: ard is a variance for each",
		"linear(year, temp, centre=1)":                     "character 1: centre is where",
		"sigmoid(year, at=dam, at=1)":                      "character 26: at is given twice",
		"sigmoid(year, at=1, at=dam)":                      "character 24: at is given twice",
		"sigmoid(year, at=größe)":                          `character 18: "größe" is no name for a change point`,
		"sigmoid(year, width=dam)":                         `character 21: width is "dam", but must be a positive number`,
		"dam: rbf(year) + a: sigmoid(year, at=dam)":        "character 38: a term has the name dam, too",
		"sigmoid(year, at=c) + b: sigmoid(temp, at=c)":     "character 43: the change point c is over year and temp",
		"sigmoid(year, temp)":                              "character 1: a sigmoid is over one input",
		"sigmoid(at=0, width=1)":                           "character 1: a sigmoid is over one input",
		"sigmoid(year, at=0, width=-1)":                    `character 27: width is "-1", but must be a positive number`,
		"rbf(year, falling)":                               `character 11: there is no input "falling"`,
		"polynomial(year, degree=2.5)":                     "character 1: degree is 2.5",
		"rbf(year)+polynomial(year, degree=11)":            "character 11: degree is 11, but must be a whole number up to 10",
		"polynomial(year, offset=-1)":                      "offset is -1",
		"polynomial(year, ard)":                            "ard does not go with polynomial",
		"linear(year, centre=x)":                           `character 21: centre is "x", but must be a number`,
		"linear(year, centre=-1, centre=1)":                "given twice",
		"rbf(temp) + rbf(year, warp(temp))":                "character 23: a warp needs the range of its input: write warp(temp, from=0, to=100)",
		"rbf(warp(year, from=0))":                          "character 5: a warp needs the range",
		"rbf(warp(year, from=3, to=3))":                    "character 5: the warp of year is from 3 to 3: the second must be the larger",
		"rbf(warp(yaer, from=0, to=1))":                    `character 10: there is no input "yaer": did you mean "year"?`,
		"rbf(warp(year, from=0, to=1), year)":              "character 31: the input year is given twice",
		"rbf(year, warp(year, from=0, to=1))":              "character 16: the input year is given twice",
		"rbf(warp(year, temp, from=0, to=1))":              "character 20: want from, to, a or b with a number",
		"rbf(warp(year, form=0, to=1))":                    "character 16: warp has no form: what can be fixed is from, to, a, b",
		"rbf(warp(year, from=0, to=1, a=0))":               `character 32: a is "0", but must be a positive number`,
		"rbf(warp(year, from=0, to=1, from=2))":            "character 35: from is given twice",
		"rbf(warp(year, from=x, to=1))":                    `character 21: from is "x", but must be a number`,
		"rbf(warp(, from=0, to=1))":                        "character 10: want the name of an input",
		"rbf(warp(year, from=0, to=1)":                     "character 29: the expression ends where",
		"rbf(temp)*linear(warp(year, from=0, to=1))":       "character 18: linear is not over warped inputs: rbf, matern12, matern32, matern52, rq and those of wendland are",
		"linear(year, lengthscale=1)":                      "character 14: linear has no lengthscale: what can be fixed is centre",
		"linear(year)*constant + a: constant*linear(year)": "are the same",
		"rbf(\xff)":                                        "not UTF-8",
		"s: (rbf(year)+rbf(temp))*matern32(year) + s_1: matern52(\"y\")": "two terms have the name s_1",
		"s: (rbf(year)+rbf(temp))*matern32(year) + s: matern52(temp)":    "two terms have the name s",
	} {
		e, err := Parse(text)
		if err == nil {
			_, err = e.Covariance(inputs)
		}
		var at *Error
		if !errors.As(err, &at) || !strings.Contains(err.Error(), want) || at.Column < 1 {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func TestUnused(t *testing.T) {
	e, err := Parse(`rbf(year) + matern32(year, "wind speed")`)
	if err != nil {
		t.Fatal(err)
	}
	if got := e.Unused([]string{"year", "temp", "wind speed"}); !slices.Equal(got, []string{"temp"}) {
		t.Errorf("unused: %v", got)
	}
	if got := e.TermInputs(1, []string{"temp", "wind speed", "year"}); !slices.Equal(got, []string{"wind speed", "year"}) {
		t.Errorf("the second term is over %v", got)
	}
	if got := e.TermInputs(0, []string{"temp", "year"}); !slices.Equal(got, []string{"year"}) {
		t.Errorf("the first term is over %v", got)
	}
}

// An expression prints as what is read as the same covariance.
func TestRoundTrip(t *testing.T) {
	leaf := rapid.SampledFrom([]string{"rbf", "rbf(year)", "matern12(temp, year)", "matern32(ard)", `matern52("wind speed", temp, ard)`, "rbf(lengthscale=1e-3)",
		"periodic(year)", "periodic(temp, period=2.5)", "periodic(year, lengthscale=3)",
		"linear", "constant", "linear(year, temp, ard)", "linear(year, centre=-2.5e3)", "linear(temp, centre=0)", "sigmoid(temp, at=-1, width=2)", "sigmoid(year, at=0, width=1e-3, falling)", "sigmoid(year)", "sigmoid(temp, falling, width=3)", "sigmoid(temp, at=dam)", "sigmoid(temp, at=dam, falling)", "polynomial", "polynomial(year, offset=2)", "polynomial(year, temp, degree=3, offset=0)",
		"rq(temp, year, ard)", "rq(year, alpha=2)", "matern32(year, warp(temp, from=-8.5, to=1e3), ard)", `rbf(warp("wind speed", from=0, to=9, a=2, b=0.5), lengthscale=3)`, "rq(warp(year, to=9, from=0, b=2))", "wendland", "cosine(year)", "cosine(temp, period=3)"})
	rapid.Check(t, func(t *rapid.T) {
		var write func(depth int) string
		write = func(depth int) string {
			var terms []string
			for range rapid.IntRange(1, 2).Draw(t, "terms") {
				var factors []string
				for range rapid.IntRange(1, 2).Draw(t, "factors") {
					if depth < 2 && rapid.IntRange(0, 3).Draw(t, "bracket") == 0 {
						factors = append(factors, "("+write(depth+1)+")")
					} else {
						factors = append(factors, leaf.Draw(t, "leaf"))
					}
				}
				terms = append(terms, strings.Join(factors, rapid.SampledFrom([]string{"*", " * ", " *\n"}).Draw(t, "times")))
			}
			return strings.Join(terms, " + ")
		}
		text := write(0)
		e, err := Parse(text)
		if err != nil {
			t.Skip(err)
		}
		again, err := Parse(e.String())
		if err != nil || again.String() != e.String() {
			t.Fatalf("%s is %v, which is read as %v: %v", text, e, again, err)
		}
		a, err := e.Covariance(inputs)
		if err != nil {
			return // the same term twice
		}
		b, err := again.Covariance(inputs)
		if err != nil || a.String() != b.String() {
			t.Fatalf("%s is %v, and again %v: %v", text, a, b, err)
		}
		over, err := kernel.Parse(a.String(), len(inputs)) // as members of a group get it
		if err != nil || over.String() != a.String() || !slices.Equal(over.Params().Names(), a.Params().Names()) {
			t.Fatalf("%v is read as %v: %v", a, over, err)
		}
		for i, p := range a.Params() {
			if q := over.Params()[i]; p.Role != q.Role || (p.Role == param.Period || p.Role == param.Place) && !slices.Equal(p.Inputs, q.Inputs) || p.Transform != q.Transform {
				t.Fatalf("%v became %v", p, q)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"rbf", "a: rbf(x, ard) + b: periodic(y, period=1)*rbf(y)", "(rbf(a)+rbf(b))*matern32", `rbf("a b", lengthscale=2e3)`, "rbf(", "a:b:rbf", "rq(x, alpha=2, ard)*hamming(a, ard) + hamming(b, correlation=.5)", "cosine(x, period=3)*wendland(x)", "a: sigmoid(x, at=dam)*rbf + sigmoid(x, at=dam, falling, width=2)", "polynomial(x, degree=3)+polynomial(x, offset=0)", `rbf(warp(x, from=-1, to=2e3), "warp", warp("a b", from=0, to=1, b=2), ard)`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			var at *Error
			if !errors.As(err, &at) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		again, err := Parse(e.String())
		if err != nil || again.String() != e.String() {
			t.Fatalf("%q is %v, which is read as %v: %v", text, e, again, err)
		}
	})
}
