package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// reference is what is read of a file of bench/posteriors.
type reference struct {
	Parameters []struct {
		Name     string
		Mean, SD struct{ Value, Error float64 }
	}
}

// whole runs a specification with seeds first, first + 1, … and holds means and standard deviations to a
// reference, by the errors that the runs state.
func whole(path, against string, first uint64, runs int) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	known, err := os.ReadFile(against)
	if err != nil {
		return err
	}
	var ref reference
	if err := json.Unmarshal(known, &ref); err != nil {
		return fmt.Errorf("%s: %w", against, err)
	}
	dir, err := os.MkdirTemp("", "accuracy")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tallies := make([]tally, 2*len(ref.Parameters))
	met := 0
	for seed := range runs {
		began := cputime.Seconds()
		r, took, err := one(text, path, first+uint64(seed), filepath.Join(dir, fmt.Sprint(seed)))
		if err != nil {
			return err
		}
		c := r.Diagnose(r.MinDraws())
		if r.Stopped.Reason == chains.Converged {
			met++
		}
		var accepted int
		for _, ch := range r.Chains {
			accepted += ch.Accepted
		}
		fmt.Printf("seed %d: %s, %d draws of %d chains, R-hat %.4f, ESS %.0f, acceptance %.2f, %s; %.0f s, %.0f s of processor time\n", first+uint64(seed), r.Stopped.Reason, c.Draws, len(r.Chains),
			c.RHat, c.ESS, float64(accepted)/float64(len(r.Chains)*max(1, c.Draws)), spent(r), took.Seconds(), cputime.Seconds()-began)
		for i, p := range ref.Parameters {
			x := r.Column(i, r.MinDraws())
			var all []float64
			for _, chain := range x {
				all = append(all, chain...)
			}
			mean, sd := stat.MeanStdDev(all, nil)
			e := r.Errors(x)
			tallies[2*i].add((mean-p.Mean.Value)/p.SD.Value, math.Hypot(e.Mean, p.Mean.Error/p.SD.Value))
			tallies[2*i+1].add(sd/p.SD.Value-1, math.Hypot(e.SD, p.SD.Error/p.SD.Value))
		}
	}
	fmt.Printf("%d of %d runs converged\n\n", met, runs)
	fmt.Println("| estimate | mean error | largest error | stated error, rms | rms of error over stated error |")
	fmt.Println("|---|---|---|---|---|")
	for i, t := range tallies {
		kind := []string{"mean", "sd"}[i%2]
		fmt.Printf("| %s of %s | %+.4f | %.4f | %.4f | %.2f |\n", kind, ref.Parameters[i/2].Name, stat.Mean(t.errors, nil), t.largest(), rms(t.stated), t.ratio())
	}
	fmt.Printf("| all | | | | %.2f |\n", together(tallies))
	return nil
}

// tally are the true and the stated errors of an estimate.
type tally struct{ errors, stated []float64 }

func (t *tally) add(err, stated float64) {
	t.errors, t.stated = append(t.errors, err), append(t.stated, stated)
}

func (t *tally) largest() (most float64) {
	for _, e := range t.errors {
		most = max(most, math.Abs(e))
	}
	return most
}

func (t *tally) ratio() float64 {
	z := make([]float64, len(t.errors))
	for i, e := range t.errors {
		z[i] = e / t.stated[i]
	}
	return rms(z)
}

// beyond counts the errors of more than so many stated ones.
func (t *tally) beyond(z float64) (n int) {
	for i, e := range t.errors {
		if math.Abs(e) > z*t.stated[i] {
			n++
		}
	}
	return n
}

// together is the root mean square of the ratios of several tallies.
func together(tallies []tally) float64 {
	ratios := make([]float64, len(tallies))
	for i, t := range tallies {
		ratios[i] = t.ratio()
	}
	return rms(ratios)
}

func rms(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	return math.Sqrt(sum / float64(len(x)))
}

// spent tells the evaluations of a staged run, by kind of stage.
func spent(r *chains.Run) string {
	var parts []string
	p := r.Plan.Params()
	for _, s := range r.Stages {
		numbers := 0
		for _, x := range s.Items {
			numbers += len(x)
		}
		parts = append(parts, fmt.Sprintf("%s %d", s.Kind, numbers/p))
	}
	return strings.Join(parts, ", ") + fmt.Sprintf("; %d factors", r.Cost().Densities)
}

func one(text []byte, path string, seed uint64, journal string) (*chains.Run, time.Duration, error) {
	ctx := context.Background()
	s, err := job.Parse(bytes.NewReader(text), path)
	if err != nil {
		return nil, 0, err
	}
	s.Seed = seed
	budget := parallel.NewBudget(0)
	data, err := s.Load(ctx, nil, budget)
	if err != nil {
		return nil, 0, err
	}
	problem, err := s.Problem(data)
	if err != nil {
		return nil, 0, err
	}
	plan := s.Plan(problem.Model.Names(), len(problem.Y))
	plan.Provisional = false
	d := driver.New(driver.Config{Spec: s, Problem: problem, Plan: &plan, Budget: budget,
		Operator: func(int) driver.Operator { return cmvp.New(problem.Inputs, problem.Covariance, budget) }})
	return local.Run(ctx, local.Config{Plan: plan, Driver: d, Budget: budget, Journal: journal})
}
