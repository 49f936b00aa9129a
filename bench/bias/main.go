// Command bias holds the samplers against the dense oracle on real data: what
// an effective draw costs, and how far the moments are off.
//
//	go run ./bench/bias --data DIR [--only concrete] [--draws 150] [--samplers exact]
//
// DIR holds concrete.csv and power.csv, as UCI has them with a header line.
// Counts and seconds are the kept draws' share, the search for the mode counted
// as if it were warm-up.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// posterior is a data set with a model, and how long its oracle runs.
type posterior struct {
	name, data, model string
	oracleDraws       int
	fisher            []setting
}

// setting is a step and a number of probes of Fisher-matched Langevin.
type setting struct {
	h      float64
	probes string
}

func main() {
	dir := flag.String("data", "", "folder with concrete.csv and power.csv")
	only := flag.String("only", "", "one of concrete, concrete-ard, power")
	draws := flag.Int("draws", 150, "kept draws of each chain of Fisher-matched Langevin; the others in proportion")
	oracle := flag.Float64("oracle", 1, "factor on the oracle's draws")
	known := flag.String("known", "", "take the oracle from this summary.json of a run with method: cholesky (with --only)")
	which := flag.String("samplers", "", "regular expression: only the rows of samplers that it matches")
	rows := flag.Int("power-rows", 3000, "rows of power.csv")
	flag.Parse()
	match, err := regexp.Compile(*which)
	if err != nil {
		log.Fatal(err)
	}
	var grid []setting
	for _, h := range []float64{0.5, 0.9, 1} {
		for _, probes := range []string{"2", "4", "16"} {
			grid = append(grid, setting{h, probes})
		}
	}
	few := []setting{{0.5, "auto"}, {0.8, "auto"}, {1, "16"}}
	for _, p := range []posterior{
		{"concrete", fmt.Sprintf("{path: %q, target: strength}", filepath.Join(*dir, "concrete.csv")), "{}", 10000, grid},
		{"concrete-ard", fmt.Sprintf("{path: %q, target: strength}", filepath.Join(*dir, "concrete.csv")), "{ard: true}", 20000, few},
		{"power", fmt.Sprintf("{path: %q, target: PE, rows: %d}", filepath.Join(*dir, "power.csv"), *rows), "{}", 3000, few},
	} {
		if *only == "" || *only == p.name {
			p.oracleDraws = int(*oracle * float64(p.oracleDraws))
			if err := p.compare(*draws, match, *known); err != nil {
				log.Fatalf("%s: %v", p.name, err)
			}
		}
	}
}

func (p *posterior) compare(draws int, match *regexp.Regexp, known string) error {
	warm := "auto"
	if p.name == "concrete-ard" {
		warm = "100"
	}
	oracle, err := p.oracle(known)
	if err != nil {
		return err
	}
	fmt.Println("| sampler | probes | draws | ESS/draw | ESS/1000 products | ESS/processor s | worst shift of a mean, sd | worst ratio of sds |")
	fmt.Println("|---|---|---|---|---|---|---|---|")

	pcg := "{tolerance: 1e-4, preconditioner: {kind: rpcholesky}}"
	type entry struct {
		name, sampler, solver string
		draws                 int
	}
	entries := []entry{
		{"Leimkuhler–Matthews, ε = 1", "{method: leimkuhler-matthews, warmup: " + warm + ", draws: %d}", pcg, 2 * draws},
	}
	for _, s := range p.fisher {
		entries = append(entries, entry{fmt.Sprintf("Fisher-matched, h = %g", s.h),
			fmt.Sprintf("{method: fisher, warmup: %s, step: %g, probes: %s, draws: %%d}", warm, s.h, s.probes), pcg, draws})
	}
	entries = append(entries,
		entry{"exact", "{method: exact, warmup: " + warm + ", draws: %d}", pcg, 2 * draws},
		entry{"SGLD as published, q = 0.1", "{method: sgld, probes: 4, checkpoint: 20, draws: %d}", "{method: ulisse, q: 0.1, law: paper, beta: 1, tolerance: 1e-8, preconditioner: {kind: none}}", 5 * draws},
		entry{"SGLD, whitened probes, PCG", "{method: sgld, probes: 4, probe_kind: whitened, sgld: {redraw: 1}, draws: %d}", pcg, 5 * draws},
	)
	for _, e := range entries {
		if !match.MatchString(e.name) {
			continue
		}
		start := cputime.Seconds()
		r, err := p.run(fmt.Sprintf(e.sampler, e.draws), e.solver, e.draws)
		if err != nil {
			fmt.Printf("| %s | | | failed: %v |\n", e.name, err)
			continue
		}
		row(e.name, r, oracle, cputime.Seconds()-start)
	}
	return nil
}

// spec returns the specification of a run.
func (p *posterior) spec(sampler, solver string, draws int) (*job.Spec, error) {
	return job.Parse(strings.NewReader(fmt.Sprintf("name: %s\ndata: %s\nmodel: %s\nsampler: %s\nsolver: %s\nstop: {max_draws: %d, ess: 1e9, max_time: 0s}\n",
		p.name, p.data, p.model, sampler, solver, draws)), p.name)
}

// run samples with four chains of the given number of kept draws.
func (p *posterior) run(sampler, solver string, draws int) (*chains.Run, error) {
	s, err := p.spec(sampler, solver, draws)
	if err != nil {
		return nil, err
	}
	ctx, budget := context.Background(), parallel.NewBudget(0)
	d, err := s.Load(ctx, nil, budget)
	if err != nil {
		return nil, err
	}
	pr, err := s.Problem(d)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bias")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	plan := s.Plan(pr.Model.Names(), len(pr.Y))
	r, _, err := local.Run(ctx, local.Config{Plan: plan, Budget: budget, Journal: filepath.Join(dir, "journal"),
		Driver: driver.New(driver.Config{Spec: s, Problem: pr, Plan: &plan, Budget: budget,
			Operator: func(int) driver.Operator { return cmvp.New(pr.Inputs, pr.Covariance, budget) }})})
	return r, err
}

func leastESS(r *chains.Run) float64 {
	least := math.Inf(1)
	for i := range r.Plan.Names {
		least = min(least, diagnostics.ESSBulk(r.Column(i, r.MinDraws())))
	}
	return least
}

func row(name string, r *chains.Run, oracle []truth, seconds float64) {
	n, kept := r.MinDraws(), 0
	var cost chains.Cost
	iterations := 0
	for _, c := range r.Chains {
		cost.Add(c.Cost)
		iterations += c.State.Iter
		kept += len(c.Draws)
	}
	share := float64(kept) / float64(iterations)
	var shift, shiftErr, ratio, ratioErr float64 = 0, 0, 1, 0
	which, whichSD := "", ""
	for i, p := range r.Plan.Names {
		x, y := r.Column(i, n), oracle[i]
		mx, sx := stat.MeanStdDev(slices.Concat(x...), nil)
		if s := (mx - y.mean) / y.sd; math.Abs(s) >= math.Abs(shift) {
			shift, which = s, p
			shiftErr = math.Hypot(diagnostics.MCSEMean(x), y.meanErr) / y.sd
		}
		if q := sx / y.sd; math.Abs(math.Log(q)) >= math.Abs(math.Log(ratio)) {
			ratio, whichSD = q, p
			ratioErr = q * math.Hypot(diagnostics.MCSESD(x)/sx, y.sdErr/y.sd)
		}
	}
	ess := leastESS(r)
	settings := "–"
	if t := r.Settings; t.Probes > 0 {
		settings = fmt.Sprint(t.Probes)
		if t.Step > 0 && t.Step < r.Plan.Step-1e-9 {
			name += fmt.Sprintf(" (noise allows %.2f)", t.Step)
		}
	}
	if r.Plan.Method == "sgld" {
		if st, err := sgld.ReadSGLDState(r.Chains[0].State.Memory, r.Plan.Params()); err == nil {
			name += fmt.Sprintf(", ε = %.2g", st.Frozen)
		}
	}
	fmt.Printf("| %s | %s | %d | %.2g | %.3g | %.3g | %+.2f ± %.2f (%s) | %.2f ± %.2f (%s) |\n", name, settings, kept, ess/float64(kept),
		1000*ess/(share*float64(cost.Products)), ess/(share*seconds), shift, shiftErr, which, ratio, ratioErr, whichSD)
}
