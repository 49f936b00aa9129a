package job

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/param"
)

// of returns a specification of a covariance with priors, written as YAML between braces.
func modelSpec(kernel, priors string) string {
	return fmt.Sprintf("name: m\ndata: {path: x.csv, target: y}\nmodel: {kernel: %q, priors: {%s}}\n", kernel, priors)
}

var weather = &dataset.Info{Rows: 9, Target: "y", InputNames: []string{"year", "hum", "wind speed"},
	XScale: []dataset.Scale{{Mean: 2000, SD: 10}, {SD: 2}, {SD: 0.5}}, YScale: dataset.Scale{SD: 4}}

// Each parameter has the prior of the nearest name.
func TestPriorsByName(t *testing.T) {
	for _, x := range []struct{ kernel, priors, want string }{
		{"rbf", "", "sigma ~ gamma(1,1), tau ~ gamma(1,1), lambda ~ gamma(1,1)"},
		{"rbf", `tau: "lognormal(0,1)", noise_sd: "halfnormal(2)"`, "sigma ~ gamma(1,1), tau ~ lognormal(0,1), noise_sd ~ halfnormal(2)"},
		{"rbf", `lengthscale: "gamma(2,1)"`, "sigma ~ gamma(1,1), lengthscale ~ gamma(2,1), lambda ~ gamma(1,1)"},
		{"t: rbf(year) + w: matern32(hum, \"wind speed\", ard)", `tau: "gamma(3,1)", w.lengthscale: "invgamma(2,2)", "w.tau[hum]": "gamma(4,1)", signal_sd: "halfnormal(9)"`,
			"t.signal_sd ~ halfnormal(9), t.tau[year] ~ gamma(3,1), w.signal_sd ~ halfnormal(9), w.tau[hum] ~ gamma(4,1), w.lengthscale[wind speed] ~ invgamma(2,2), lambda ~ gamma(1,1)"},
		{"g: (rbf(year) + rbf(hum)) * matern12(year)", `g.matern12.lengthscale: "gamma(2,2)"`,
			"g_1.variance ~ gamma(1,1), g_1.rbf.tau[year] ~ gamma(1,1), g.matern12.lengthscale[year] ~ gamma(2,2), g_2.variance ~ gamma(1,1), g_2.rbf.tau[hum] ~ gamma(1,1), lambda ~ gamma(1,1)"},
		{"s: periodic(year)*rbf(year)", `s.periodic.period: "lognormal(0,0.1)", s.periodic.lengthscale: "gamma(2,2)", s.variance: "pc(1,0.1)"`,
			"s.variance ~ pc(1,0.1), s.periodic.lengthscale ~ gamma(2,2), s.periodic.period ~ lognormal(0,0.1), s.rbf.tau[year] ~ gamma(1,1), lambda ~ gamma(1,1)"},
		{"w: rq(year, hum) + c: cosine(hum, period=3) * wendland(hum)", `w.alpha: "gamma(2,1)"`,
			"w.variance ~ gamma(1,1), w.tau ~ gamma(1,1), w.alpha ~ gamma(2,1), c.variance ~ gamma(1,1), c.wendland.tau[hum] ~ gamma(1,1), lambda ~ gamma(1,1)"},
		{"w: rq(year)", `tau: "gamma(3,1)"`, "w.variance ~ gamma(1,1), w.tau[year] ~ gamma(3,1), w.alpha ~ lognormal(0,1), lambda ~ gamma(1,1)"},
	} {
		s, err := ParseString(modelSpec(x.kernel, x.priors))
		if err != nil {
			t.Errorf("%s: %v", x.kernel, err)
			continue
		}
		priors, err := s.PriorsOf(weather)
		if err != nil {
			t.Errorf("%s: %v", x.kernel, err)
			continue
		}
		var got []string
		for _, p := range priors {
			got = append(got, strings.TrimSuffix(p.Quantity+" ~ "+p.Prior+" of "+p.Note, " of "))
		}
		if g := strings.Join(got, ", "); g != x.want {
			t.Errorf("%s with %s has\n%s, want\n%s", x.kernel, x.priors, g, x.want)
		}
		text, err := s.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseString(string(text)); err != nil || fmt.Sprint(again.Model) != fmt.Sprint(s.Model) {
			t.Errorf("%s came back as %v, %v", x.kernel, again, err)
		}
	}
}

// A prior on a length-scale is in the units of the input, one on a standard deviation in those of the
// target: the densities are gonum's.
func TestPriorsOfRootsHaveUnits(t *testing.T) {
	s, err := ParseString(modelSpec("t: rbf(year)", `t.lengthscale: "gamma(2,0.1)", noise_sd: "lognormal(0.3,0.5)"`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.KernelModel(weather)
	if err != nil {
		t.Fatal(err)
	}
	const psi = -0.7
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: log density %v, want %v", what, got, want)
		}
	}
	ell := 10 / math.Sqrt(2*math.Exp(psi)) // |dℓ/dψ| = ℓ/2
	got, _ := m.Params[1].Prior.LogDensity(psi)
	near("length-scale", got, distuv.Gamma{Alpha: 2, Beta: 0.1}.LogProb(ell)+math.Log(ell/2))
	sd := 4 * math.Exp(psi/2)
	got, _ = m.Params[2].Prior.LogDensity(psi)
	near("sd", got, distuv.LogNormal{Mu: 0.3, Sigma: 0.5}.LogProb(sd)+math.Log(sd/2))
}

func TestMistakesOfModels(t *testing.T) {
	for _, x := range []struct{ kernel, priors, want string }{
		{"rbf(year", "", "model.kernel: character 9: the expression ends"},
		{"rbf(yaer)", "", `model.kernel: character 5: there is no input "yaer": did you mean "year"?`},
		{"t: rbf(year)", `u.tau: "gamma(1,1)"`, "model.priors.u.tau: the covariance has no term u"},
		{"t: rbf(year)", `t.lenghtscale: "gamma(1,1)"`, "model.priors.t.lenghtscale: there is no such quantity: did you mean t.lengthscale?"},
		{"t: rbf(year)", `t.tau: "gama(1,1)"`, "did you mean gamma(shape,rate)?"},
		{"t: rbf(year)", `t.tau: "gamma(1,1)", t.lengthscale: "gamma(1,1)"`, "t.lengthscale and t.tau are one parameter"},
		{"t: rbf(year)", `"t.tau[year]": "gamma(1,1)", t.tau: "gamma(1,1)"`, "model.priors.t.tau: it is given for each parameter"},
		{"s: periodic(year)", "", "model.priors: s.period is a parameter without a prior"},
		{"s: periodic(year)", `s.period: "pc(1,0.1)"`, "model.priors.s.period: prior \"pc(1,0.1)\": pc is for variances"},
		{"rbf", `lenghtscale: "gamma(1,1)"`, "unknown field"},
		{"c: cosine(year)", "", "c.period is a parameter without a prior"},
		{"w: rq(year)", `w.alpha: "pc(1,0.1)"`, "pc is for variances and length-scales"},
		{"c: rbf(year)", `c.variance: "lkj(1)"`, "lkj(eta) is the prior of a correlation matrix, and that has no other"},
		{"hamming(hum)", "", "declare it by data.categories: [hum]"},
	} {
		s, err := ParseString(modelSpec(x.kernel, x.priors))
		if err == nil {
			_, err = s.KernelModel(weather)
		}
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s with %s: %v, want %q", x.kernel, x.priors, err, x.want)
		}
	}
	for field, want := range map[string]string{"model: {kernel: rbf(x), ard: true}": "model.ard: an expression says", "model: {kernel: rbf + rbf}": "synthetic data are made from one family"} {
		text := "name: m\ndata: {synthetic: {n: 50, d: 2, sigma: 1, tau: 1, lambda: 0.1}}\n" + field
		if _, err := ParseString(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", field, err, want)
		}
	}
	s, err := ParseString(modelSpec("rbf(year) + rbf(hum)", ""))
	if err != nil {
		t.Fatal(err)
	}
	if h := s.Hints(weather); len(h) != 1 || !strings.Contains(h[0], "wind speed") {
		t.Errorf("hints %q", h)
	}
	s.Sampler.Method = "fisher"
	if h := s.Hints(weather); len(h) != 2 || !strings.Contains(h[1], "sampler.method: auto") {
		t.Errorf("hints %q", h)
	}
}

// Of a table with a category.
func TestCategories(t *testing.T) {
	d := *weather
	d.InputNames = []string{"year", "hum", "station"}
	d.Levels = [][]string{nil, nil, {"A", "B", "C"}}
	for _, x := range []struct{ kernel, priors, want string }{
		{"h: hamming(station) * rbf(year)", `tau: "gamma(5,5)"`,
			"h.variance ~ gamma(1,1), h.hamming.tau[station] ~ gamma(1,1), h.rbf.tau[year] ~ gamma(5,5), lambda ~ gamma(1,1)"},
		{"h: hamming(station) * rbf(year)", `h.hamming.correlation: "beta(2,5)"`,
			"h.variance ~ gamma(1,1), h.hamming.correlation[station] ~ beta(2,5), h.rbf.tau[year] ~ gamma(1,1), lambda ~ gamma(1,1)"},
		{"hamming(station)", `correlation: "beta(2,5)"`, "hamming.variance ~ gamma(1,1), hamming.correlation[station] ~ beta(2,5), lambda ~ gamma(1,1)"},
		{"a: sigmoid(year, at=dam, falling) + b: sigmoid(year, at=dam, width=2) + polynomial(hum)", `dam.place: "uniform(1990,2010)"`,
			"a.variance ~ gamma(1,1), dam.place ~ uniform(1990,2010), dam.width ~ lognormal(0,1), b.variance ~ gamma(1,1), polynomial.variance ~ gamma(1,1), polynomial.offset ~ lognormal(0,1), lambda ~ gamma(1,1)"},
		{"s: sigmoid(year)", "", "s.variance ~ gamma(1,1), s.place ~ normal(2000,10), s.width ~ lognormal(0,1), lambda ~ gamma(1,1)"},
		{"w: matern52(warp(hum, from=0, to=100), year, ard)", `w.warp_b: "lognormal(0,1)", "w.lengthscale[hum]": "lognormal(2,1)"`,
			"w.variance ~ gamma(1,1), w.lengthscale[hum] ~ lognormal(2,1), w.tau[year] ~ gamma(1,1), w.warp_a[hum] ~ lognormal(0,0.5), w.warp_b[hum] ~ lognormal(0,1), lambda ~ gamma(1,1)"},
		{"hamming(station)", `hamming.correlation: "uniform(0,1)"`, "model.priors.hamming.correlation: prior \"uniform(0,1)\": the prior of a correlation is beta(a,b)"},
		{"s: sigmoid(year)", `s.place: "gamma(1,1)"`, "model.priors.s.place: prior \"gamma(1,1)\": the parameter may be any number: use one of normal(mean,sd), uniform(lo,hi)"},
		{"h: hamming(station)", `h.tau: "lognormal(0,2)"`, "h.variance ~ gamma(1,1), h.tau[station] ~ lognormal(0,2), lambda ~ gamma(1,1)"},
		{"c: coregion(station) * rbf(year)", "", "c.variance ~ gamma(1,1), c.coregion.correlation ~ lkj(2) of the matrix of A, B, C, c.coregion.scale[B] ~ lognormal(0,1), c.coregion.scale[C] ~ lognormal(0,1), c.rbf.tau[year] ~ gamma(1,1), lambda ~ gamma(1,1)"},
		{"c: coregion(station, rank=1, scale=1) * rbf(year, lengthscale=1)", `c.coregion.correlation: "lkj(3)", c.variance: "gamma(2,2)"`,
			"c.variance ~ gamma(2,2), c.coregion.correlation ~ lkj(3) of each partial correlation with the factors (rank 1) of A, B, C, lambda ~ gamma(1,1)"},
		{"c: coregion(station) * rbf(year)", `c.coregion.scale: "gamma(2,2)", "c.coregion.scale[C]": "gamma(3,3)"`, "c.variance ~ gamma(1,1), c.coregion.correlation ~ lkj(2) of the matrix of A, B, C, c.coregion.scale[B] ~ gamma(2,2), c.coregion.scale[C] ~ gamma(3,3), c.rbf.tau[year] ~ gamma(1,1), lambda ~ gamma(1,1)"},
		{"c: coregion(station) * rbf(year)", `c.coregion.corelation: "gamma(2,2)"`, "model.priors.c.coregion.corelation: there is no such quantity: did you mean c.coregion.correlation?"},
		{"c: coregion(station) * rbf(year)", `"c.coregion.correlation[A,B]": "lkj(2)"`, "model.priors.c.coregion.correlation[A,B]: there is no such quantity: did you mean c.coregion.correlation?"},
		{"rbf", "", `model.kernel: rbf is over all inputs, and station is a category, whose levels have no distances: write an expression such as kernel: "rbf(year, hum) * hamming(station)"`},
		{"rbf(year, station)", "", "model.kernel: character 11: the input station is a category"},
	} {
		s, err := ParseString(modelSpec(x.kernel, x.priors))
		if err != nil {
			t.Fatal(err)
		}
		priors, err := s.PriorsOf(&d)
		if err != nil {
			if err.Error() != x.want && !strings.HasPrefix(err.Error(), x.want) {
				t.Errorf("%s: %v, want %s", x.kernel, err, x.want)
			}
			continue
		}
		var got []string
		for _, p := range priors {
			got = append(got, strings.TrimSuffix(p.Quantity+" ~ "+p.Prior+" of "+p.Note, " of "))
		}
		if g := strings.Join(got, ", "); g != x.want {
			t.Errorf("%s with %s has\n%s, want\n%s", x.kernel, x.priors, g, x.want)
		}
	}
	s, err := ParseString(modelSpec("s: cosine(hum, period=9) * rbf(year)", ""))
	if err != nil {
		t.Fatal(err)
	}
	if h := s.Hints(&d); len(h) != 2 || !strings.Contains(h[1], "s has the period 9") {
		t.Errorf("hints %q", h)
	}
	if s, err = ParseString(modelSpec("coregion(station) * rbf(year, hum)", "")); err != nil {
		t.Fatal(err)
	}
	if h := s.Hints(&d); len(h) != 1 || !strings.Contains(h[0], "one noise variance: give each its own by model.noise: {by: station}") {
		t.Errorf("hints %q", h)
	}
}

// Places and centres of leaves are in the units of the inputs: k(x,x) is that of the formula written out in these.
func TestLeavesInTheUnitsOfInputs(t *testing.T) {
	s := func(x, at, width float64) float64 { return 1 / (1 + math.Exp(-(x-at)/width)) }
	for text, want := range map[string]func(year float64) float64{
		"linear(year, centre=1990)":                   func(x float64) float64 { return (x - 1990) * (x - 1990) / 100 },
		"linear(year)":                                func(x float64) float64 { return (x - 2000) * (x - 2000) / 100 },
		"sigmoid(year, at=1990, width=2)*rbf(hum)":    func(x float64) float64 { return s(x, 1990, 2) * s(x, 1990, 2) },
		"sigmoid(year)":                               func(x float64) float64 { return s(x, 1990, 2) * s(x, 1990, 2) },
		"sigmoid(year, at=dam, width=3, falling)":     func(x float64) float64 { return s(-x, -1990, 3) * s(-x, -1990, 3) },
		"sigmoid(year, at=2004, falling)*rbf":         func(x float64) float64 { return s(-x, -2004, 2) * s(-x, -2004, 2) },
		"sigmoid(year, at=2004, width=3, falling)":    func(x float64) float64 { return s(-x, -2004, 3) * s(-x, -2004, 3) },
		"polynomial(year, degree=2, offset=1)*rbf":    func(x float64) float64 { z := (x - 2000) / 10; return (1 + z*z) * (1 + z*z) },
		"linear(year, centre=2010)*linear(year)*rbf ": func(x float64) float64 { return math.Pow((x-2010)/10*(x-2000)/10, 2) },
	} {
		spec, err := ParseString(modelSpec(text, ""))
		if err != nil {
			t.Fatal(err)
		}
		c, err := spec.Covariance(weather)
		if err != nil {
			t.Fatal(err)
		}
		theta := make([]float64, len(c.Params()))
		for i, p := range c.Params() {
			switch theta[i] = 1; p.Role {
			case param.Place:
				theta[i] = 1990
			case param.Width:
				theta[i] = 2
			}
		}
		for _, year := range []float64{1987, 2000, 2013} {
			x := weather.Standardize([][]float64{{year, 1, 1}}).Row(0)
			if got := c.At(theta).Variance(x); math.Abs(got-want(year)) > 1e-12*(1+want(year)) {
				t.Errorf("%s: the variance at %g is %g, want %g", text, year, got, want(year))
			}
		}
	}
}
