package cli

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Of three classes without an order there are effects on the probability of each, which add up to one, the function of each class, draws of
// all of them together, pictures and a cross-validation; what is of one latent function is refused in a sentence.
func TestSeveralFunctions(t *testing.T) {
	if testing.Short() {
		t.Skip("three runs: not in short tests")
	}
	dir := t.TempDir()
	table := "x,z,kind\n"
	for i := range 30 {
		x, z := 2*math.Sin(float64(i)), math.Cos(1.7*float64(i))
		kind := []string{"oak", "ash", "elm"}[int(math.Floor(x+0.5*z+30))%3]
		table += fmt.Sprintf("%g,%g,%s\n", x, z, kind)
	}
	path := write(t, dir, "kinds.csv", table)
	spec := write(t, dir, "kinds.yaml", fmt.Sprintf(`
name: kinds
data: {path: %s, target: kind}
model: {likelihood: categorical}
sampler: {chains: 2, warmup: 10, draws: 10, checkpoint: 10}
stop: {rhat: 10, ess: 1}
`, path))
	folder, at := filepath.Join(dir, "kinds"), func(name string) string { return filepath.Join(dir, name) }
	good(t, "run", spec, "--out", folder, "-q")

	effects := predictions(t, write(t, dir, "e.csv", withoutColumn(good(t, "effects", folder, "x", "--grid", "3", "--draws", "4", "--plot", at("e.svg"), "-q"), "of")))
	if len(effects["mean"]) != 9 {
		t.Fatalf("effects %v", effects)
	}
	for i := range 3 {
		if sum := effects["mean"][i] + effects["mean"][i+3] + effects["mean"][i+6]; math.Abs(sum-1) > 1e-9 || effects["x"][i] != effects["x"][i+3] {
			t.Errorf("the probabilities of the classes at %g add up to %g", effects["x"][i], sum)
		}
	}
	for name, want := range map[string]string{
		"--latent":    "row,class,mean[ash],sd[ash],mean[elm],sd[elm],mean[oak],sd[oak],p[ash],p[elm],p[oak],target,log_density,brier",
		"--paths=2":   "row,path_1[ash],path_1[elm],path_1[oak],path_2[ash],path_2[elm],path_2[oak]",
		"--tolerance": "row,class,p[ash],p[elm],p[oak],target,log_density,brier",
	} {
		if name == "--tolerance" {
			name += "=0.001"
		}
		if head, _, _ := strings.Cut(good(t, "predict", folder, "--data", path, name, "--draws", "4", "-q"), "\n"); head != want {
			t.Errorf("%s: columns %s, want %s", name, head, want)
		}
	}
	good(t, "predict", folder, "--data", path, "--paths", "2", "--noise", "--draws", "4", "-q", "--out", at("p.npy"))
	good(t, "predict", folder, "--data", path, "--paths", "2", "--draws", "4", "-q", "--out", at("f.npy"))
	good(t, "predict", folder, "--data", path, "--draws", "4", "-q", "--out", at("p.csv"), "--plot", at("c.svg"))
	good(t, "draws", folder, "--out", at("d.npz"), "--predictive", "2")
	for file, want := range map[string]string{"p.npy": "(2, 30,)", "f.npy": "(2, 30, 3,)", "c.svg": "share of rows rejected", "e.svg": "p[elm]"} {
		if text, err := os.ReadFile(at(file)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %s: %v", file, want, err)
		}
	}
	if out := good(t, "cv", spec, "--folds", "2", "--out", at("cv"), "-q"); !strings.Contains(out, "Brier") {
		t.Errorf("cross-validation says\n%s", out)
	}
	for _, c := range []struct {
		args []string
		said string
	}{
		{[]string{"predict", folder, "--data", path, "--gradient"}, "of several latent functions there are predictions"},
		{[]string{"predict", folder, "--data", path, "--covariance", at("k.csv")}, "of several latent functions there are predictions"},
		{[]string{"draws", folder, "--lp"}, "under Gaussian noise alone"},
		{[]string{"loo", folder}, "rows cannot be left out exactly"},
	} {
		if code, _, stderr := ulisse(t, "", c.args...); code == 0 || !strings.Contains(stderr, c.said) {
			t.Errorf("%v: %d, %s", c.args, code, stderr)
		}
	}
}

// withoutColumn returns a table without a column of texts.
func withoutColumn(table, name string) string {
	var out []string
	at := -1
	for _, line := range strings.Split(strings.TrimSpace(table), "\n") {
		fields := strings.Split(line, ",")
		if at < 0 {
			for k, f := range fields {
				if f == name {
					at = k
				}
			}
		}
		out = append(out, strings.Join(append(fields[:at:at], fields[at+1:]...), ","))
	}
	return strings.Join(out, "\n") + "\n"
}
