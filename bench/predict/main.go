// Command predict measures predictions: on rows held out of real data, averaged
// over the posterior beside the plug-in mode, and held against exact dense
// predictions for the same draws; what a row costs; and how long a cluster takes
// to answer.
//
//	go run ./bench/predict -data DIR [-only concrete,power] [-power-rows 3000] [-draws 100] [-dense 5]
//	go run ./bench/predict -data DIR -only house8l -draws 1 -test-rows 64 -predictions exact
//	go run ./bench/predict -run FOLDER -draws 8 -test-rows 256
//	go run ./bench/predict -coordinators host:port -job ID -calls 200 [-batch 1]
//
// DIR holds concrete.csv, power.csv and house8l.csv.gz with a header line. The draws of
// house8l are not sampled but scattered around where its posterior is; those of a run
// that held rows out come from its FOLDER.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// study is a data set with a model.
type study struct {
	name, data, model string
	// psi and sd, if there, stand in for the posterior: draws are scattered with
	// these sds around psi.
	psi, sd []float64
	run     *report.Record // whose draws they are; nil: sampled here
}

func main() {
	dir := flag.String("data", "", "folder with the tables")
	only := flag.String("only", "concrete,concrete-ard,power", "comma-separated: some of concrete, concrete-ard, power, house8l")
	power := flag.Int("power-rows", 3000, "rows of power.csv, 0 for all")
	house := flag.Int("house-rows", 0, "rows of house8l.csv.gz, 0 for all")
	draws := flag.Int("draws", 0, "draws to average over, 0 for as many as are independent, 100 at most")
	test := flag.Int("test-rows", 0, "rows held out that are predicted, 0 for all")
	folder := flag.String("run", "", "folder of a run with data.holdout: take its draws, in place of -only")
	which := flag.String("predictions", "exact,surface,plug-in mode", "comma-separated: some of these")
	dense := flag.Int("dense", 5, "draws at which dense predictions are computed beside, 0 for none")
	var l latency
	l.flags()
	flag.Parse()
	ctx := context.Background()
	if l.job != "" {
		if err := l.measure(ctx); err != nil {
			log.Fatal(err)
		}
		return
	}
	fmt.Println("| data | rows, predicted | prediction | draws | RMSE | MLPD | CRPS | in 50 % | in 90 % | in 95 % | sd off by, at most | processor s per 1,000 rows |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|---|")
	if *folder != "" {
		rec, err := report.ReadFolder(*folder)
		if err != nil {
			log.Fatal(err)
		}
		s := study{name: rec.Spec.Name, run: rec}
		if err := s.predict(ctx, rec.Spec, *draws, *test, *dense, *which); err != nil {
			log.Fatalf("%s: %v", s.name, err)
		}
		return
	}
	for _, s := range []study{
		{name: "concrete", data: table(*dir, "concrete.csv", "strength", 0), model: "{}"},
		{name: "concrete-ard", data: table(*dir, "concrete.csv", "strength", 0), model: "{ard: true}"},
		{name: "power", data: table(*dir, "power.csv", "PE", *power), model: "{}"},
		{name: "house8l", data: table(*dir, "house8l.csv.gz", "price", *house), model: "{}",
			psi: []float64{1.01, -0.83, -1.75}, sd: []float64{0.041, 0.027, 0.015}},
	} {
		for _, name := range strings.Split(*only, ",") {
			if name == s.name {
				if err := s.sample(ctx, *draws, *test, *dense, *which); err != nil {
					log.Fatalf("%s: %v", s.name, err)
				}
			}
		}
	}
}

// table returns the data of a specification, a tenth held out.
func table(dir, file, target string, rows int) string {
	return fmt.Sprintf("{path: %q, target: %s, rows: %d, holdout: 0.1}", filepath.Join(dir, file), target, rows)
}

func (s *study) sample(ctx context.Context, want, test, dense int, which string) error {
	spec, err := job.Parse(strings.NewReader(fmt.Sprintf("name: %s\ndata: %s\nmodel: %s\nsampler: {warmup: 100, draws: 250}\nsolver: {tolerance: 1e-4}\nstop: {max_time: 0s}\n", s.name, s.data, s.model)), s.name)
	if err != nil {
		return err
	}
	return s.predict(ctx, spec, want, test, dense, which)
}

func (s *study) predict(ctx context.Context, spec *job.Spec, want, test, dense int, which string) error {
	budget := parallel.NewBudget(0)
	d, err := spec.Load(ctx, nil, budget)
	if err != nil {
		return err
	}
	p, err := spec.Problem(d)
	if err != nil {
		return err
	}
	kept, mode, err := s.draws(ctx, spec, p, budget)
	if err != nil {
		return err
	}
	e := &experiment{study: s, spec: spec, data: d, problem: p, budget: budget, points: d.HoldoutX, targets: d.HoldoutY}
	if test > 0 && test < d.HeldOut {
		rows := make([]int, test)
		for i := range rows {
			rows[i] = i
		}
		e.points, e.targets = d.HoldoutX.Select(rows), d.HoldoutY[:test]
	}
	draws := predict.Thin(kept, want)
	for _, c := range []struct {
		name  string
		draws [][]float64
		o     predict.Options
	}{
		{"exact", draws, predict.Options{}},
		{"surface", draws, predict.Options{Variance: predict.Surface}},
		{"plug-in mode", [][]float64{mode}, predict.Options{}},
	} {
		if !slices.Contains(strings.Split(which, ","), c.name) {
			continue
		}
		if err := e.row(ctx, c.name, c.draws, c.o, dense); err != nil {
			return err
		}
	}
	return nil
}

// draws returns the draws of a run, chain by chain, and the mode; or what stands
// in for them.
func (s *study) draws(ctx context.Context, spec *job.Spec, p *posterior.Problem, budget *parallel.Budget) (kept [][][]float64, mode []float64, err error) {
	if s.run != nil {
		for _, c := range s.run.Run.Chains {
			kept = append(kept, c.Draws[:s.run.Run.MinDraws()])
		}
		return kept, s.run.Run.Prepared.Psi, nil
	}
	if s.psi != nil {
		kept = make([][][]float64, 4)
		for c := range kept {
			for t := range 100 {
				psi := make([]float64, len(s.psi))
				random.Normal(random.Key{Seed: spec.Seed, Chain: c + 1, Iter: t}.Stream(random.Provisional, 0), psi)
				for i := range psi {
					psi[i] = s.psi[i] + s.sd[i]*psi[i]
				}
				kept[c] = append(kept[c], psi)
			}
		}
		return kept, s.psi, nil
	}
	dir, err := os.MkdirTemp("", "predict")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	plan := spec.Plan(p.Model.Names(), len(p.Y))
	drv := driver.New(driver.Config{Spec: spec, Problem: p, Plan: &plan, Budget: budget,
		Operator: func(int) driver.Operator { return cmvp.New(p.Inputs, p.Covariance, budget) }})
	r, _, err := local.Run(ctx, local.Config{Plan: plan, Driver: drv, Budget: budget, Journal: filepath.Join(dir, "journal")})
	if err != nil {
		return nil, nil, err
	}
	for _, c := range r.Chains {
		kept = append(kept, c.Draws)
	}
	return kept, r.Prepared.Psi, nil
}

// experiment predicts rows that were held out.
type experiment struct {
	*study
	spec    *job.Spec
	data    *dataset.Dataset
	problem *posterior.Problem
	budget  *parallel.Budget
	points  *kernel.Inputs
	targets []float64 // standardised
}

func (e *experiment) row(ctx context.Context, name string, draws [][]float64, o predict.Options, dense int) error {
	p, err := predict.New(predict.FromSpec(e.spec, e.problem, draws, e.budget))
	if err != nil {
		return err
	}
	var start, once float64 // processor seconds at the beginning, and of K⁻¹y
	var wall time.Time
	o.Progress = func(at predict.Progress) {
		if at.Stage == predict.SolutionsStage && at.Done == at.Total {
			once, start, wall = cputime.Seconds()-start, cputime.Seconds(), time.Now()
		}
	}
	start = cputime.Seconds()
	m, stats, err := p.Predict(ctx, e.points, o)
	if err != nil {
		return err
	}
	n := e.points.Len()
	thousand := 1000 * (cputime.Seconds() - start) / float64(n)
	wallThousand := 1000 * time.Since(wall).Seconds() / float64(n)
	req := predict.Request{X: make([][]float64, n), Targets: make([]float64, n)}
	for i, y := range e.targets {
		req.Targets[i] = e.data.Undo(y)
	}
	s := predict.Score(predict.Summarize(m, &e.data.Info, req, o.Latent, e.budget), e.problem.Likelihood)
	off := "≤ " + fmt.Sprintf("%.1e", stats.Bound)
	if o.Variance == predict.Surface {
		off = fmt.Sprintf("%.1e at one draw", stats.SurfaceError)
	} else if dense > 0 && len(e.problem.Y) <= maxDense {
		mean, sd := against(e.problem, draws[:min(dense, len(draws))], m, e.points)
		off = fmt.Sprintf("%.1e, means %.1e sd", sd, mean)
	}
	fmt.Printf("| %s | %d, %d | %s | %d | %.4g | %.4f | %.4g |", e.name, e.data.N(), n, name, len(draws), s.RMSE, s.MLPD, s.CRPS)
	for _, c := range s.Coverage {
		fmt.Printf(" %.1f %% |", 100*c.Within)
	}
	fmt.Printf(" %s | %.3g |\n", off, thousand)
	log.Printf("%s, %s: %d solves, %.1f iterations each; K⁻¹y %.3g processor s; 1,000 rows take %.3g s; unconverged %d, clipped %d",
		e.name, name, stats.Solves, float64(stats.Iterations)/float64(stats.Solves), once, wallThousand, stats.Unconverged, stats.Clipped)
	if stats.Unconverged+stats.MeansUnconverged > 0 {
		return errors.New("some systems were not solved")
	}
	return nil
}
