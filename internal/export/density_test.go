package export

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// small is a run of two chains of three draws over 18 rows of generated data.
func small(t *testing.T) *Source {
	t.Helper()
	s := job.Default()
	s.Name = "small"
	s.Data.Synthetic = &job.Synthetic{N: 20, D: 2, Sigma: 1, Tau: job.Floats{0.5}, Lambda: 0.1, Seed: 3}
	s.Data.Holdout = 0.1
	text, err := s.YAML()
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Load(t.Context(), nil, parallel.NewBudget(1))
	if err != nil {
		t.Fatal(err)
	}
	run := &chains.Run{Prepared: &chains.Prepared{}, Chains: make([]chains.Chain, 2)}
	run.Plan.Method, run.Plan.Names = "fisher", []string{"sigma", "tau", "lambda"}
	for c := range run.Chains {
		for i := range 3 {
			run.Chains[c].Draws = append(run.Chains[c].Draws, []float64{0.1 * float64(i), -0.5 + 0.2*float64(c), -1.5 + 0.1*float64(i)})
		}
	}
	rec := &report.Record{SpecText: string(text), Data: d.Info, Run: run}
	if err := rec.Open(); err != nil {
		t.Fatal(err)
	}
	return &Source{Record: rec, Data: d, Created: time.Unix(0, 0)}
}

// covariance returns K over some training rows at a draw, and their targets.
func covariance(src *Source, psi []float64, rows []int) (k *mat.SymDense, y *mat.VecDense) {
	theta, own := src.Record.Model.Natural(psi)
	f, d := src.Record.Model.Covariance.At(theta), src.Data
	k, y = mat.NewSymDense(len(rows), nil), mat.NewVecDense(len(rows), nil)
	for a, i := range rows {
		y.SetVec(a, d.Y[i])
		for b, j := range rows {
			k.SetSym(a, b, f.Value(d.X.Row(i), d.X.Row(j)))
		}
		k.SetSym(a, a, k.At(a, a)+own[0])
	}
	return k, y
}

// logNormal returns log N(y|0,K).
func logNormal(k *mat.SymDense, y *mat.VecDense) float64 {
	var chol mat.Cholesky
	chol.Factorize(k)
	var x mat.VecDense
	_ = chol.SolveVecTo(&x, y)
	return -0.5*mat.Dot(y, &x) - 0.5*chol.LogDet() - 0.5*float64(y.Len())*math.Log(2*math.Pi)
}

func all(n int) (rows []int) {
	for i := range n {
		rows = append(rows, i)
	}
	return rows
}

// The log density is that of dense algebra and the priors' closed forms, and stands in every table.
func TestLogDensities(t *testing.T) {
	src := small(t)
	lp, err := LogDensities(t.Context(), src, parallel.NewBudget(2), nil)
	if err != nil {
		t.Fatal(err)
	}
	for c, ch := range src.Record.Run.Chains {
		for i, psi := range ch.Draws {
			want := logNormal(covariance(src, psi, all(src.Data.N())))
			problem, err := src.Record.Spec.Problem(src.Data)
			if err != nil {
				t.Fatal(err)
			}
			prior, _ := problem.LogPrior(psi) // held against closed forms in internal/param
			if math.Abs(lp[c][i]-want-prior) > 1e-9 {
				t.Errorf("chain %d, draw %d: %g, want %g", c, i, lp[c][i], want+prior)
			}
		}
	}
	src.LogDensity = lp
	for chain, head := range map[int]string{0: "chain__,draw__,lp__,sigma,", 2: "lp__,sigma,"} {
		var b bytes.Buffer
		if err := WriteCSV(&b, src, chain); err != nil {
			t.Fatal(err)
		}
		r := csv.NewReader(&b)
		r.Comment = '#'
		rows, err := r.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		at, last := slices.Index(rows[0], "lp__"), rows[len(rows)-1]
		if !strings.HasPrefix(strings.Join(rows[0], ","), head) || last[at] != strconv.FormatFloat(lp[1][2], 'g', -1, 64) {
			t.Errorf("chain %d: %v … %v", chain, rows[0], last)
		}
	}
	var stats *Group
	for _, g := range Tree(src) {
		if g.Name == "sample_stats" {
			stats = &g
		}
	}
	if stats == nil || stats.Vars[0].Name != "lp" || !slices.Equal(stats.Vars[0].Data.([]float64), slices.Concat(lp...)) {
		t.Errorf("%+v", stats)
	}
	var b bytes.Buffer
	if err := writeParquet(&b, src); err != nil || !strings.Contains(b.String(), "lp__") {
		t.Errorf("no lp__ in the table: %v", err)
	}
}

// log p(y_i | y_−i, θ) is the difference of the log densities of all rows and of all others, less the logarithm of
// the target's unit.
func TestLogLikelihood(t *testing.T) {
	src := small(t)
	n := src.Data.N()
	g, stats, err := LogLikelihood(t.Context(), src, 2, parallel.NewBudget(2), nil)
	if err != nil || stats.Unconverged > 0 {
		t.Fatal(stats, err)
	}
	y := g.Vars[0]
	if fmt.Sprint(y.Shape) != fmt.Sprint([]int{2, 2, n}) || !slices.Equal(g.Coords[1].Data.([]int64), []int64{0, 2}) {
		t.Fatal(y.Shape, g.Coords[1].Data)
	}
	for c, ch := range src.Record.Run.Chains {
		for k, at := range []int{0, 2} {
			whole := logNormal(covariance(src, ch.Draws[at], all(n)))
			for i := range n {
				others := slices.Delete(all(n), i, i+1)
				want := whole - logNormal(covariance(src, ch.Draws[at], others)) - math.Log(src.Data.YScale.SD)
				if got := y.Data.([]float64)[(c*2+k)*n+i]; math.Abs(got-want) > 1e-6 {
					t.Errorf("chain %d, draw %d, row %d: %g, want %g", c, at, i, got, want)
				}
			}
		}
	}
	src.LogLikelihood = g
	if names := groupNames(src); !slices.Contains(names, "log_likelihood") {
		t.Errorf("groups %v", names)
	}
}

func groupNames(src *Source) (names []string) {
	for _, g := range Tree(src) {
		names = append(names, g.Name)
	}
	return names
}

func TestLogDensityOfTooManyRows(t *testing.T) {
	src := small(t)
	src.Data.Rows = 100_000
	if _, err := LogDensities(t.Context(), src, parallel.NewBudget(1), nil); err == nil || !strings.Contains(err.Error(), "stored matrix") {
		t.Error(err)
	}
}
