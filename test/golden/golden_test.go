// Package golden pins the bits of draws and predictions: a table of their hashes
// for each sampler, covariance, precision, preconditioner and instruction set.
//
// A hash that changes is a promise broken (docs/architecture.md, The invariant):
// draws would no longer be those of the last release, and a cluster that is being
// upgraded would mix two arithmetics in one job. If the change is meant, raise
// version.Arithmetic and write the table anew:
//
//	go test ./test/golden -update
//
// As long as the arithmetic has the same name, that adds new cases and changes no hash.
package golden

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"hash"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/version"
)

var update = flag.Bool("update", false, "write testdata/bits.json anew")

const tableFile = "testdata/bits.json"

// table is what testdata/bits.json holds: hashes by case and instruction set.
type table struct {
	Arithmetic string                       `json:"arithmetic"`
	Hashes     map[string]map[string]string `json:"hashes"`
}

// golden is a specification whose draws are pinned.
type golden struct {
	name, text string
	predict    predict.Variance // not "": predictions from the draws are, too
	table      string           // the data, where the specification has none
	levels     [][]string       // of its inputs that are categories
}

// data of 150 rows; what follows is merged into the specification.
const small = `
name: golden
data: {synthetic: {n: 150, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
stop: {max_draws: 12}
`

func sampler(method string) string {
	return fmt.Sprintf("{method: %s, chains: 2, warmup: 10, draws: 12, checkpoint: 6}", method)
}

// with returns the small specification with the given sections.
func with(model, sampler, solver string) string {
	return small + "model: " + model + "\nsampler: " + sampler + "\nsolver: " + solver + "\n"
}

func cases() []golden {
	const rbf, float64s = "{kernel: rbf}", "{precision: float64}"
	var all []golden
	add := func(name, model, sampler, solver string) {
		all = append(all, golden{name: name, text: with(model, sampler, solver)})
	}
	for _, method := range []string{"fisher", "leimkuhler-matthews", "exact", "cholesky"} {
		add(method, rbf, sampler(method), float64s)
	}
	for _, method := range []string{"fisher", "leimkuhler-matthews"} {
		add(method+"/mixed", rbf, sampler(method), "{precision: mixed}")
		add(method+"/ulisse", rbf, sampler(method), "{method: ulisse, law: optimal, q: 0.1}")
		add(method+"/auto", rbf, sampler(method), "{method: auto}")
	}
	const sgld = "{method: sgld, chains: 2, draws: 12, checkpoint: 6, sgld: {a: 0.4, batch: 10, freeze: 1e6, redraw: 3}}"
	add("sgld", rbf, sgld, "{method: cg, preconditioner: {kind: none}, precision: float64}")
	add("sgld/mixed", rbf, sgld, "{method: pcg, preconditioner: {kind: nystrom}, precision: mixed}")
	for _, law := range []string{"paper", "geometric", "decay", "optimal"} {
		add("sgld/ulisse/"+law, rbf, sgld, "{method: ulisse, preconditioner: {kind: none}, q: 0.1, beta: 0.5, law: "+law+"}")
	}
	for _, family := range []string{"matern12", "matern32", "matern52"} {
		for _, precision := range []string{"float64", "mixed"} {
			add("fisher/"+family+"/"+precision, "{kernel: "+family+"}", sampler("fisher"), "{precision: "+precision+"}")
		}
		add("cholesky/"+family, "{kernel: "+family+"}", sampler("cholesky"), "{}")
		add("exact/"+family, "{kernel: "+family+"}", sampler("exact"), "{}")
	}
	for _, family := range []string{"rbf", "matern12", "matern32", "matern52"} {
		add("fisher/ard/"+family, "{kernel: "+family+", ard: true}", sampler("fisher"), float64s)
	}
	add("cholesky/ard", "{kernel: rbf, ard: true}", sampler("cholesky"), "{}")
	add("exact/ard", "{kernel: rbf, ard: true}", sampler("exact"), "{}")
	for _, kind := range []string{"rademacher", "pathwise"} {
		add("fisher/"+kind, rbf, strings.Replace(sampler("fisher"), "{", "{probe_kind: "+kind+", ", 1), float64s)
	}
	for _, kind := range []string{"auto", "nystrom", "fitc", "pitc", "cholesky", "rpcholesky", "svd", "fourier", "blockjacobi", "regularized", "ski"} {
		add("preconditioner/"+kind, rbf, sampler("fisher"), "{precision: float64, preconditioner: {kind: "+kind+"}}")
	}
	add("priors", "{kernel: rbf, priors: {sigma: 'pc(3,0.1)', tau: 'lognormal(-1,1)', lambda: 'invgamma(2,0.5)'}}", sampler("fisher"), float64s)
	add("priors/rate", "{kernel: rbf, priors: {sigma: 'halfnormal(2)', tau: 'pc(0.5,0.1)'}}", sampler("fisher"), float64s)
	const auto = "{method: auto, chains: 2, draws: 12, auto: {starts: 2, density: %s}}"
	for _, density := range []string{"auto", "learnt"} {
		add("auto/"+density, rbf, fmt.Sprintf(auto, density), float64s)
	}
	// More rows than the first search for the mode takes, and several tasks.
	all = append(all, golden{name: "rows", text: `
name: golden
data: {synthetic: {n: 900, d: 3, sigma: 1, tau: 0.3, lambda: 0.1, seed: 5}}
model: {kernel: rbf, ard: true}
sampler: {method: fisher, chains: 2, warmup: 4, draws: 4, checkpoint: 4, subset: 200}
stop: {max_draws: 4}
`})
	var table strings.Builder
	table.WriteString("a,b,y\n")
	for i := range 150 {
		fmt.Fprintf(&table, "%d,%d,%d\n", i, i*i%37, (i*i*i+5*i)%23+i%12)
	}
	for name, x := range map[string]struct{ model, method string }{
		"kernel": {`kernel: "slope: linear(a, centre=20) * matern32(b) + linear(b) + constant + rbf(a, b)"`, "fisher"},
		"only":   {`kernel: "linear(a, b, ard)", mean: constant`, "cholesky"},
		"mean":   {"kernel: matern52, mean: linear", "fisher"},
	} {
		all = append(all, golden{name: "linear/" + name, table: table.String(), text: `
name: golden
data: {path: "-", target: y}
stop: {max_draws: 12}
model: {` + x.model + `}
sampler: ` + sampler(x.method) + "\n"})
	}
	for name, kernel := range map[string]string{
		"sum":      "rbf(a) + matern32(a, b, ard) * matern12(b) + matern52(b, lengthscale=9)",
		"periodic": "rbf(a) + s: periodic(a, period=12) * rbf(a) + p: periodic(b)",
		"shapes":   "rq(a, b, ard) + rq(b) * cosine(a, period=12) + wendland(a, b)",
	} {
		for _, method := range []string{"fisher", "cholesky"} {
			all = append(all, golden{name: "expression/" + name + "/" + method, table: table.String(), text: `
name: golden
data: {path: "-", target: y}
stop: {max_draws: 12}
model: {kernel: "` + kernel + `", priors: {` + map[string]string{"periodic": `p.period: "lognormal(2,0.2)"`}[name] + `}}
sampler: ` + sampler(method) + "\n"})
		}
	}
	all = append(all, golden{name: "expression/warp", table: strings.Join(strings.SplitAfter(table.String(), "\n")[:41], ""), text: `
name: golden
data: {path: "-", target: y}
stop: {max_draws: 12}
model: {kernel: "matern52(warp(a, from=0, to=40), warp(b, from=0, to=36, b=1), ard)"}
sampler: ` + sampler("fisher") + "\n"})
	add("gibbs/student-t", "{kernel: rbf, likelihood: student-t}", sampler("gibbs"), "{}")
	var classes strings.Builder
	classes.WriteString("a,b,y\n")
	for i := range 150 {
		fmt.Fprintf(&classes, "%d,%d,%d\n", i, i*i%37, (i*i*i+5*i)%23/12)
	}
	var names []string // rows of classes without an order
	for i := range 60 {
		names = append(names, fmt.Sprintf("%d,%d,%s\n", i, i*i%37, []string{"elm", "oak", "yew"}[(i/9+i*i%5/3)%3]))
	}
	for _, v := range []predict.Variance{"", predict.Exact} {
		all = append(all, golden{name: "gibbs/bernoulli/" + string(v), table: classes.String(), predict: v, text: `
name: golden
data: {path: "-", target: y}
stop: {max_draws: 12}
model: {kernel: rbf, ard: true, likelihood: bernoulli}
sampler: ` + sampler("gibbs") + "\n"})
	}
	add("gibbs/student-t/df", `{kernel: rbf, likelihood: student-t, priors: {df: "gamma(2,0.1)"}}`, sampler("gibbs"), "{}")
	all = append(all, golden{name: "gibbs/ordinal", table: strings.ReplaceAll(classes.String(), "7,1\n", "7,2\n"), predict: predict.Exact, text: `
name: golden
data: {path: "-", target: y}
stop: {max_draws: 12}
model: {kernel: rbf, likelihood: ordinal}
sampler: ` + sampler("gibbs") + "\n"})
	add("sgpmc/gaussian", "{kernel: rbf, approximation: {kind: sgpmc, inducing: 12}}", sampler("sgpmc"), "{}")
	add("gibbs/quantile", "{kernel: rbf, likelihood: quantile, level: 0.8}", sampler("gibbs"), "{}")
	var trials strings.Builder
	trials.WriteString("a,m,y\n")
	for i := range 60 {
		fmt.Fprintf(&trials, "%d,%d,%d\n", i, 1+i%6, i*i%7*(1+i%6)/6)
	}
	for name, x := range map[string]struct{ table, data, model string }{
		"probit":   {classes.String(), "", "likelihood: bernoulli, link: probit"},
		"binomial": {trials.String(), ", trials: m", "likelihood: binomial"},
		"poisson":  {trials.String(), "", "likelihood: poisson"},
	} {
		all = append(all, golden{name: "gibbs/" + name, table: x.table, text: `
name: golden
data: {path: "-", target: y` + x.data + `}
stop: {max_draws: 12}
model: {kernel: rbf, ` + x.model + `}
sampler: ` + sampler("gibbs") + "\n"})
	}
	all = append(all, golden{name: "pseudo-marginal/binomial", table: trials.String(), text: `
name: golden
data: {path: "-", target: y, trials: m}
stop: {max_draws: 12}
model: {kernel: rbf, likelihood: binomial}
sampler: ` + sampler("pseudo-marginal") + "\n"})
	all = append(all, golden{name: "elliptical/binomial", table: trials.String(), text: `
name: golden
data: {path: "-", target: y, trials: m}
stop: {max_draws: 12}
model: {kernel: rbf, likelihood: binomial}
sampler: ` + sampler("elliptical") + "\n"})
	for _, v := range []predict.Variance{"", predict.Exact} {
		all = append(all, golden{name: "elliptical/categorical/" + string(v), table: "a,b,y\n" + strings.Join(names, ""), predict: v, text: `
name: golden
data: {path: "-", target: y}
stop: {max_draws: 12}
model: {kernel: rbf, likelihood: categorical}
sampler: ` + sampler("elliptical") + "\n"})
		all = append(all, golden{name: "elliptical/heteroscedastic/" + string(v), table: "a,b,y\n" + strings.Join(strings.SplitAfter(table.String(), "\n")[1:61], ""), predict: v, text: `
name: golden
data: {path: "-", target: y}
stop: {max_draws: 12}
model: {kernel: rbf, likelihood: heteroscedastic, noise: {log_variance: "rbf(a)"}}
sampler: ` + sampler("elliptical") + "\n"})
	}
	for name, x := range map[string]struct{ table, model string }{
		"twinned":      {"a,b,y\n" + strings.Join(strings.SplitAfter(table.String(), "\n")[1:25], ""), `likelihood: twinned, noise: {gate: "rbf(a)"}`},
		"noisy-labels": {strings.Join(strings.SplitAfter(classes.String(), "\n")[:25], ""), `likelihood: noisy-labels, noise: {gate: "rbf(b)"}`},
	} {
		all = append(all, golden{name: "elliptical/" + name, table: x.table, text: `
name: golden
data: {path: "-", target: y}
stop: {max_draws: 12}
model: {kernel: rbf, ` + x.model + `}
sampler: ` + sampler("elliptical") + "\n"})
	}
	// A column of whole numbers that is a category, and not standardised.
	all = append(all, golden{name: "expression/hamming/fisher", table: table.String(), levels: [][]string{nil, make([]string, 37)}, text: `
name: golden
data: {path: "-", target: y, standardize: false}
stop: {max_draws: 12}
model: {kernel: "rbf(a) + rbf(a) * hamming(b)", priors: {rbf.lengthscale: "lognormal(3,1)", rbf_hamming.rbf.lengthscale: "lognormal(3,1)", signal_sd: "lognormal(2,1)"}}
sampler: ` + sampler("fisher") + "\n"})
	var noisy strings.Builder
	noisy.WriteString("a,b,sd,w,s,y\n")
	for i := range 150 {
		fmt.Fprintf(&noisy, "%d,%d,%g,%d,%c,%d\n", i, i*i%37, []float64{0.05, 0.5, 3}[i%3], 1+i%4, 'A'+rune(i%5%2), (i*i*i+5*i)%23+i%12)
	}
	for name, noise := range map[string]string{"known": "{column: sd}", "levels": "{by: s, column: sd, as: variance}"} {
		weights := map[string]string{"known": ", exclude: [w, s]", "levels": ", weights: w"}[name]
		for _, method := range []string{"fisher", "cholesky"} {
			all = append(all, golden{name: "noise/" + name + "/" + method, table: noisy.String(), text: `
name: golden
data: {path: "-", target: y` + weights + `}
stop: {max_draws: 12}
model: {kernel: rbf, noise: ` + noise + `}
sampler: ` + sampler(method) + "\n"})
		}
	}
	for name, rank := range map[string]string{"full": "", "rank-1": ", rank=1"} {
		method := map[string]string{"full": "fisher", "rank-1": "cholesky"}[name]
		all = append(all, golden{name: "coregion/" + name + "/" + method, table: strings.ReplaceAll(noisy.String(), "1,B,", "1,C,"), levels: [][]string{nil, {"A", "B", "C"}}, text: `
name: golden
data: {path: "-", target: y, inputs: [a, s], categories: [s]}
stop: {max_draws: 12}
model: {kernel: "coregion(s` + rank + `) * matern52(a)", noise: {by: s}}
sampler: ` + sampler(method) + "\n"})
	}
	all = append(all, golden{name: "transform/yeo-johnson", table: noisy.String(), text: `
name: golden
data: {path: "-", target: y, inputs: [a, b], transform: yeo-johnson}
stop: {max_draws: 12}
model: {kernel: rbf}
sampler: ` + sampler("fisher") + "\n"})
	all = append(all, golden{name: "sparsity", text: `
name: golden
data: {synthetic: {n: 600, d: 1, sigma: 1, tau: 5000, lambda: 0.1, seed: 3}}
stop: {max_draws: 6}
model: {kernel: matern32, priors: {tau: "lognormal(8.5,0.3)"}}
sampler: {method: fisher, chains: 1, warmup: 6, draws: 6, checkpoint: 6, subset: 80, probes: 4}
solver: {sparsity: on, preconditioner: {rank: 40}}
`})
	for _, v := range []predict.Variance{predict.Exact, predict.Surface} {
		all = append(all, golden{name: "predict/" + string(v), text: with(rbf, sampler("fisher"), "{}"), predict: v})
	}
	return all
}

// bits runs a case and returns the hash of its draws, or of its predictions.
func bits(t *testing.T, c golden) string {
	t.Helper()
	ctx := context.Background()
	spec, err := job.ParseString(c.text)
	if err != nil {
		t.Fatal(err)
	}
	budget := parallel.NewBudget(2)
	data, err := spec.Load(ctx, strings.NewReader(c.table), budget)
	if err != nil {
		t.Fatal(err)
	}
	data.Levels = c.levels
	p, err := spec.Problem(data)
	if err != nil {
		t.Fatal(err)
	}
	plan := spec.PlanOf(p.Model.Names(), data.N(), p.Functions())
	plan.Provisional = false // 200 dense densities, which change no draw
	d := driver.New(driver.Config{Spec: spec, Problem: p, Plan: &plan, Budget: budget,
		Operator: func(int) driver.Operator { return cmvp.New(p.Inputs, p.Covariance, budget) }})
	run, _, err := local.Run(ctx, local.Config{Plan: plan, Driver: d, Budget: budget, Journal: filepath.Join(t.TempDir(), "journal")})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	var draws [][]float64
	for _, ch := range run.Chains {
		draws = append(draws, ch.Draws...)
	}
	if len(draws) == 0 {
		t.Fatal("the run has no draws")
	}
	if c.predict == "" {
		for _, psi := range draws {
			write(sum, psi...)
		}
		return hex.EncodeToString(sum.Sum(nil))
	}
	writePredictions(t, sum, spec, p, draws, c.predict, budget)
	return hex.EncodeToString(sum.Sum(nil))
}

func write(h hash.Hash, x ...float64) {
	for _, v := range x {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(v))
		h.Write(b[:])
	}
}

func writePredictions(t *testing.T, h hash.Hash, spec *job.Spec, p *posterior.Problem, draws [][]float64, v predict.Variance, budget *parallel.Budget) {
	t.Helper()
	pr, err := predict.New(predict.FromSpec(spec, p, draws[:8], budget))
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := pr.Predict(context.Background(), kernel.NewInputs(3, 2, []float64{0, 0, 0.5, -1, 3, 3}), predict.Options{Variance: v})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if c, ok := m.Mixture(i, false).(likelihood.Categories); ok { // which has no moments
			write(h, c.P...)
			continue
		}
		for _, latent := range []bool{false, true} {
			mean, sd := m.Mixture(i, latent).Moments()
			write(h, mean, sd)
		}
	}
}

const childVariable = "ULISSE_GOLDEN_CHILD"

// Cases name their method, so that another default changes none.
func TestCasesNameTheirMethod(t *testing.T) {
	named := regexp.MustCompile(`(?m)^sampler: \{[^}]*method: `)
	for _, c := range cases() {
		if !named.MatchString(c.text) {
			t.Errorf("%s names no method:\n%s", c.name, c.text)
		}
	}
}

// TestBits compares every case with the table, each instruction set in a process
// of its own.
func TestBits(t *testing.T) {
	if rounding, _, _ := strings.Cut(version.Rounding(), "/"); rounding != "amd64" {
		t.Skipf("the table is that of amd64 with FMA, as releases are built: this is %s", rounding)
	}
	if testing.Short() {
		t.Skip("slow: half a minute")
	}
	if file := os.Getenv(childVariable); file != "" {
		child(t, file)
		return
	}
	want := readTable(t)
	got := map[string]map[string]string{}
	for _, isa := range tile.Available() {
		for name, hash := range inProcess(t, isa) {
			if got[name] == nil {
				got[name] = map[string]string{}
			}
			got[name][isa.String()] = hash
		}
	}
	now := table{Arithmetic: version.Arithmetic, Hashes: got}
	faults := want.compare(now)
	if *update {
		faults = want.update(now)
	}
	for _, f := range faults {
		t.Error(f)
	}
	if *update && len(faults) == 0 {
		writeTable(t, now)
	}
}

const changedBits = "%s on %s has changed its bits. If that is not meant, find what did it: a new Go or gonum, or the last change to a kernel, " +
	"a solver or a sampler. If it is, raise version.Arithmetic (internal/version), so that workers of this version and of the last are not mixed in one " +
	"job, then: go test ./test/golden -update"

// compare returns what is wrong with the table, given what the cases come to.
func (want table) compare(got table) (faults []string) {
	if want.Arithmetic != got.Arithmetic {
		return []string{fmt.Sprintf("version.Arithmetic is %s, the table is of %s: go test ./test/golden -update", got.Arithmetic, want.Arithmetic)}
	}
	for _, name := range slices.Sorted(maps.Keys(got.Hashes)) {
		for _, isa := range slices.Sorted(maps.Keys(got.Hashes[name])) {
			switch want.Hashes[name][isa] {
			case got.Hashes[name][isa]:
			case "":
				faults = append(faults, fmt.Sprintf("%s on %s is not in the table: go test ./test/golden -update", name, isa))
			default:
				faults = append(faults, fmt.Sprintf(changedBits, name, isa))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.Hashes)) {
		if got.Hashes[name] == nil {
			faults = append(faults, name+" is in the table and not among the cases")
		}
	}
	return faults
}

// update completes a new table by what the old one says of instruction sets that this
// machine lacks. Of the same arithmetic no hash may change.
func (want table) update(got table) (faults []string) {
	if want.Arithmetic != got.Arithmetic {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(got.Hashes)) {
		hashes := got.Hashes[name]
		for isa, hash := range want.Hashes[name] {
			switch hashes[isa] {
			case hash:
			case "":
				hashes[isa] = hash
			default:
				faults = append(faults, fmt.Sprintf(changedBits, name, isa))
			}
		}
	}
	return faults
}

// A bit that changes fails, with and without -update, until version.Arithmetic is
// raised; what is new is added.
func TestTable(t *testing.T) {
	of := func(arithmetic, a, b string) table {
		h := map[string]map[string]string{}
		for name, hash := range map[string]string{"a": a, "b": b} {
			if hash != "" {
				h[name] = map[string]string{"avx2": hash}
			}
		}
		return table{arithmetic, h}
	}
	for _, c := range []struct {
		name              string
		want, got         table
		compared, updated int
		says              string
	}{
		{name: "the same", want: of("1", "x", "y"), got: of("1", "x", "y")},
		{name: "a bit", want: of("1", "x", "y"), got: of("1", "x", "z"), compared: 1, updated: 1, says: "raise version.Arithmetic"},
		{name: "a bit, raised", want: of("1", "x", "y"), got: of("2", "x", "z"), compared: 1, says: "-update"},
		{name: "a new case", want: of("1", "x", ""), got: of("1", "x", "y"), compared: 1, says: "-update"},
		{name: "a case less", want: of("1", "x", "y"), got: of("1", "x", ""), compared: 1, says: "not among the cases"},
	} {
		faults := c.want.compare(c.got)
		if len(faults) != c.compared || !strings.Contains(strings.Join(faults, " "), c.says) {
			t.Errorf("%s: %q", c.name, faults)
		}
		if faults := c.want.update(c.got); len(faults) != c.updated {
			t.Errorf("%s, updated: %q", c.name, faults)
		}
	}
	old, now := of("1", "x", "y"), of("1", "x", "y")
	old.Hashes["a"]["avx512"] = "z"
	if faults := old.update(now); len(faults) > 0 || now.Hashes["a"]["avx512"] != "z" {
		t.Errorf("an instruction set that this machine lacks: %v, %v", faults, now)
	}
}

// inProcess runs the cases in a process that computes with an instruction set.
func inProcess(t *testing.T, isa tile.ISA) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hashes.json")
	cmd := exec.Command(os.Args[0], "-test.run=^TestBits$")
	cmd.Env = append(os.Environ(), tile.ISAVariable+"="+isa.String(), childVariable+"="+file)
	if *update {
		cmd.Env = append(cmd.Env, allVariable+"=all")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", isa, err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var hashes map[string]string
	if err := json.Unmarshal(text, &hashes); err != nil {
		t.Fatal(err)
	}
	return hashes
}

// allVariable, set to all, has all cases computed with each instruction set. Else those but the fastest compute a
// third of them, the same each time.
const allVariable = "ULISSE_GOLDEN"

func child(t *testing.T, file string) {
	available := tile.Available()
	isa, err := tile.Default()
	if err != nil {
		t.Fatal(err)
	}
	some := isa != available[len(available)-1] && os.Getenv(allVariable) != "all"
	hashes := map[string]string{}
	for _, c := range cases() {
		if some && crc32.ChecksumIEEE([]byte(c.name))%3 != 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) { hashes[c.name] = bits(t, c) })
	}
	text, err := json.Marshal(hashes)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func readTable(t *testing.T) table {
	t.Helper()
	tab := table{Hashes: map[string]map[string]string{}}
	text, err := os.ReadFile(tableFile)
	if os.IsNotExist(err) && *update {
		return tab
	}
	if err == nil {
		err = json.Unmarshal(text, &tab)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func writeTable(t *testing.T, tab table) {
	t.Helper()
	text, err := json.MarshalIndent(tab, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tableFile, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
