package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	dense "github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// pilotDraws of each chain of Fisher-matched Langevin give the proposal of the
// oracle its middle and its shape: they need not be right, the weights make it so.
const pilotDraws = 250

// truth are the moments of a log parameter according to the oracle, with their
// Monte Carlo errors.
type truth struct{ mean, sd, meanErr, sdErr float64 }

// oracle returns the moments by importance sampling: independent draws of a
// Student t, weighed with the dense log density (Vehtari, Simpson, Gelman, Yao
// and Gabry 2024). Unlike a Metropolis chain it says by its k-hat whether it is
// to be believed, and it does not slow down with the number of parameters.
func (p *posterior) oracle(known string) ([]truth, error) {
	if known != "" {
		return read(p.name, known)
	}
	pilot, err := p.run(fmt.Sprintf("{method: fisher, warmup: 60, draws: %d}", pilotDraws), "{tolerance: 1e-4, preconditioner: {kind: rpcholesky}}", pilotDraws)
	if err != nil {
		return nil, err
	}
	k := len(pilot.Plan.Names)
	mean, columns := make([]float64, k), make([][]float64, k)
	for i := range k {
		columns[i] = slices.Concat(pilot.Column(i, pilot.MinDraws())...)
		mean[i] = stat.Mean(columns[i], nil)
	}
	cov := mat.NewSymDense(k, nil)
	for i := range k {
		for j := range i + 1 {
			cov.SetSym(i, j, stat.Covariance(columns[i], columns[j], nil))
		}
	}
	proposal, err := sgld.NewMetropolis(nil, cov, mean, false)
	if err != nil {
		return nil, fmt.Errorf("the covariance of the pilot's draws: %w", err)
	}

	s, err := p.spec("{}", "{}", 500)
	if err != nil {
		return nil, err
	}
	budget := parallel.NewBudget(0)
	d, err := s.Load(context.Background(), nil, budget)
	if err != nil {
		return nil, err
	}
	problem, err := s.Problem(d)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	exact := dense.NewDense(problem, budget)
	draws, logWeights := make([][]float64, p.oracleDraws), make([]float64, p.oracleDraws)
	for i := range draws {
		draws[i] = proposal.Propose(random.Key{Seed: 1, Iter: i}.Stream(random.Provisional, 0))
		logWeights[i] = exact.LogDensity(draws[i]) - proposal.LogProposal(draws[i])
	}
	w, khat := diagnostics.PSIS(logWeights)
	fmt.Printf("\n%s: oracle of %d independent draws with importance weights, k-hat %.2f, ESS %.0f, %.0f s\n\n",
		p.name, len(draws), khat, 1/floats.Dot(w, w), time.Since(start).Seconds())
	out := make([]truth, k)
	for i := range out {
		out[i] = weighted(draws, w, i)
	}
	return out, nil
}

// weighted returns the moments of coordinate i under weights that sum to one,
// and their errors by the delta method.
func weighted(draws [][]float64, w []float64, i int) truth {
	var t truth
	for j, x := range draws {
		t.mean += w[j] * x[i]
	}
	variance := 0.0
	for j, x := range draws {
		variance += w[j] * (x[i] - t.mean) * (x[i] - t.mean)
	}
	var mean2, variance2 float64
	for j, x := range draws {
		c := x[i] - t.mean
		mean2 += w[j] * w[j] * c * c
		variance2 += w[j] * w[j] * (c*c - variance) * (c*c - variance)
	}
	t.sd = math.Sqrt(variance)
	t.meanErr, t.sdErr = math.Sqrt(mean2), math.Sqrt(variance2)/(2*t.sd)
	return t
}

// read returns what an earlier run of the cholesky sampler found.
func read(name, known string) ([]truth, error) {
	text, err := os.ReadFile(known)
	if err != nil {
		return nil, err
	}
	var sum struct {
		Parameters []struct {
			Name string  `json:"name"`
			Mean float64 `json:"mean"`
			SD   float64 `json:"sd"`
			ESS  float64 `json:"ess_bulk"`
		} `json:"parameters"`
	}
	if err := json.Unmarshal(text, &sum); err != nil {
		return nil, fmt.Errorf("%s: %w", known, err)
	}
	var out []truth
	for _, q := range sum.Parameters {
		if strings.HasPrefix(q.Name, "log_") {
			out = append(out, truth{q.Mean, q.SD, q.SD / math.Sqrt(q.ESS), q.SD / math.Sqrt(2*q.ESS)})
		}
	}
	fmt.Printf("\n%s: oracle of %s\n\n", name, known)
	return out, nil
}
