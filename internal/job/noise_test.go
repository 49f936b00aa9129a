package job

import (
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

const noisy = `x,sd,w,station,y
1,0.5,1,A,3
2,0.1,2,B,5
4,2,1,A,1
7,0.1,4,C,2
`

func noiseSpec(data, noise, priors string) string {
	return "name: m\ndata: {path: x.csv, target: y" + data + "}\nmodel: {kernel: rbf" + noise + ", priors: {" + priors + "}}\n"
}

// The parameters of the noise, and their priors, are those that the specification asks for.
func TestNoiseOfASpecification(t *testing.T) {
	for _, x := range []struct{ data, noise, priors, want string }{
		{", exclude: [station]", "", "", "lambda ~ gamma(1,1)"},
		{", weights: w, exclude: [station]", "", `lambda: "halfnormal(1)"`, "lambda ~ halfnormal(1)"},
		{", exclude: [station]", ", noise: {column: sd}", `noise_sd: "halfnormal(2)"`, "noise_sd ~ halfnormal(2)"},
		{", exclude: [station]", ", noise: {column: sd, as: variance, extra: none}", "", ""},
		{"", ", noise: {by: station}", `noise_sd: "halfnormal(2)", "noise_sd[station=B]": "pc(1,0.1)", "lambda[station=C]": "gamma(2,2)"`,
			"noise_sd[station=A] ~ halfnormal(2), noise_sd[station=B] ~ pc(1,0.1), lambda[station=C] ~ gamma(2,2)"},
		{", weights: w", ", noise: {by: station, column: sd}", `lambda: "gamma(3,1)"`,
			"lambda[station=A] ~ gamma(3,1), lambda[station=B] ~ gamma(3,1), lambda[station=C] ~ gamma(3,1)"},
	} {
		s, err := ParseString(noiseSpec(x.data, x.noise, x.priors))
		if err != nil {
			t.Errorf("%s%s: %v", x.data, x.noise, err)
			continue
		}
		d, err := s.Load(t.Context(), strings.NewReader(noisy), parallel.NewBudget(1))
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Problem(d)
		if err != nil {
			t.Errorf("%s%s: %v", x.data, x.noise, err)
			continue
		}
		priors, err := s.PriorsOf(&d.Info)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, q := range priors[len(p.Covariance.Params()):] {
			got = append(got, q.Quantity+" ~ "+q.Prior)
		}
		if g := strings.Join(got, ", "); g != x.want {
			t.Errorf("%s%s has %s, want %s", x.data, x.noise, g, x.want)
		}
		// Whoever has no rows, as a coordinator, has the same parameters.
		m, err := s.KernelModel(dataset.InfoOf(d.Wire("")))
		if err != nil || strings.Join(m.Names(), " ") != strings.Join(p.Names(), " ") {
			t.Errorf("%s%s: %v without the rows, %v with them, %v", x.data, x.noise, m.Names(), p.Names(), err)
		}
		if _, noise := p.At(make([]float64, p.NumParams())); (len(noise) == 4) != (x.noise != "" || strings.Contains(x.data, "weights")) {
			t.Errorf("%s%s: noise %v", x.data, x.noise, noise)
		}
	}
}

func TestBadNoise(t *testing.T) {
	for _, x := range []struct{ data, noise, priors, want string }{
		{"", ", noise: {}", "", "model.noise: nothing is said of the noise"},
		{"", ", noise: {column: y}", "", "model.noise.column: this is the target: name another column"},
		{", weights: sd", ", noise: {column: sd}", "", "model.noise: one column is named for two things"},
		{", exclude: [station]", ", noise: {by: station}", "", "model.noise.by: this column is excluded: take it off data.exclude"},
		{", inputs: [x, w], weights: w", "", "", "data.weights: this column is one of data.inputs"},
		{"", ", noise: {column: sd, as: var}", "", "model.noise.as: the column holds one of sd, variance"},
		{"", ", noise: {by: station, as: sd}", "", "model.noise.as: there is no column of known noise"},
		{"", ", noise: {column: sd, extra: some}", "", "model.noise.extra: noise beside what is known is one of lambda, none"},
		{"", ", noise: {by: station, extra: none}", "", "model.noise.extra: without known noise there has to be some"},
		{", weights: w", ", noise: {column: sd, extra: none}", "", "model.noise.extra: model.noise.by and data.weights are of the noise that is not known"},
		{"", ", noise: {colum: sd}", "", `model.noise.colum: unknown field: did you mean "column"?`},
		{"", ", noise: {by: station}", `"noise_sd[station=D]": "halfnormal(2)"`, `model.priors.noise_sd[station=D]: there is no such quantity: did you mean noise_sd[station=`},
		{"", ", noise: {by: station}", `"noise_sd[station=A]": "halfnormal(2)", "lambda[station=A]": "halfnormal(2)"`, "model.priors: noise_sd[station=A] and lambda[station=A] are one parameter: give one of them"},
		{", exclude: [station, w]", ", noise: {column: sd, extra: none}", "", "data.target: the noise of row 4 is known to be 0, and there is no other"},
	} {
		s, err := ParseString(noiseSpec(x.data, x.noise, x.priors))
		if err == nil {
			var d *dataset.Dataset
			if d, err = s.Load(t.Context(), strings.NewReader(strings.Replace(noisy, "7,0.1", "7,0", 1)), parallel.NewBudget(1)); err == nil {
				_, err = s.Problem(d)
			}
		}
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s%s%s:\n got %v\nwant %s", x.data, x.noise, x.priors, err, x.want)
		}
	}
	if _, err := ParseString("name: m\ndata: {synthetic: {n: 9, d: 1, sigma: 1, tau: 1, lambda: 1}, weights: w}\n"); err == nil || !strings.Contains(err.Error(), "data.weights: generated data have no such column") {
		t.Errorf("weights of generated data: %v", err)
	}
}
