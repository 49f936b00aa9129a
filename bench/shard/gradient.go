package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/shard"
	"github.com/ulisse-gp/ulisse/internal/sizing"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// gradientRow is a size of group: processor seconds of a gradient, planned and measured, medians
// over the turns.
type gradientRow struct {
	N          int     `json:"n"`
	S          int     `json:"s"`
	Rank       int     `json:"rank"`
	Members    int     `json:"members"`
	Iterations float64 `json:"iterations"`
	Planned    float64 `json:"planned_cpu_seconds"`
	Measured   float64 `json:"measured_cpu_seconds"`
	Factor     float64 `json:"planned_over_measured"`
	Least      float64 `json:"least_factor"`
	Most       float64 `json:"most_factor"`
	// What applying the preconditioner takes of the gradient: planned of all members, measured of the driver.
	PlannedShare  float64 `json:"planned_preconditioner_share"`
	MeasuredShare float64 `json:"measured_preconditioner_share"`
}

// gradients holds the plans of gradients of groups against gradients, and prints all rows.
func (o *options) gradients(asJSON bool, ns, ss, groups []int) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	if !asJSON {
		fmt.Printf("a gradient, rbf, d=%d, %d cores a member; processor seconds of all members, medians of %d turns\n", o.d, o.cores, o.reps)
		fmt.Fprintln(w, "n\ts\trank\tmembers\titerations\tplanned\tmeasured\tplanned/measured\tleast\tmost\tP of the gradient\tplanned\t")
	}
	for _, n := range ns {
		for _, s := range ss {
			rows, err := o.gradient(n, s, groups)
			if err != nil {
				return err
			}
			for _, r := range rows {
				if asJSON {
					err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(r))
					continue
				}
				fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%.1f\t%.3g\t%.3g\t%.2f\t%.2f\t%.2f\t%.1f %%\t%.1f %%\t\n", r.N, r.S, r.Rank, r.Members, r.Iterations, r.Planned, r.Measured,
					r.Factor, r.Least, r.Most, 100*r.MeasuredShare, 100*r.PlannedShare)
			}
			if err = errors.Join(err, w.Flush()); err != nil {
				return err
			}
		}
	}
	return nil
}

// timed is a preconditioner that knows the driver's processor time of being applied.
type timed struct {
	*precond.LowRank
	seconds *float64
}

func (t timed) Solve(dst, v [][]float64) {
	began := cputime.Seconds()
	t.LowRank.Solve(dst, v)
	*t.seconds += cputime.Seconds() - began
}

// subject is a gradient that is taken in groups of several sizes.
type subject struct {
	spec *job.Spec
	p    *posterior.Problem
	pre  timed
	rank int
	psi  []float64
}

// subject returns the gradient of a job over the inputs that all members have.
func (o *options) subject(ctx context.Context, n, s int) (*subject, error) {
	rank := int(math.Ceil(o.rank * math.Sqrt(float64(n))))
	spec, err := job.ParseString(fmt.Sprintf("name: plan\ndata: {synthetic: {n: 100, d: %d, sigma: 1, tau: 0.1, lambda: 0.1, seed: 1}}\n"+
		"solver: {preconditioner: {kind: rpcholesky, rank: %d}}\nsampler: {method: fisher, probes: %d}\n", o.d, rank, s-1))
	if err != nil {
		return nil, err
	}
	budget := parallel.NewBudget(o.cores)
	data, err := spec.Load(ctx, nil, budget)
	if err != nil {
		return nil, err
	}
	p, err := spec.Problem(data)
	if err != nil {
		return nil, err
	}
	in, rnd := o.inputs(n), rand.New(rand.NewPCG(5, 6))
	y := make([]float64, n)
	for i := range y {
		for _, x := range in.Row(i) {
			y[i] += math.Sin(x) / 2
		}
		y[i] += rnd.NormFloat64() / 3
	}
	sub := &subject{spec: spec, p: posterior.NewProblem(p.Model, in, y), rank: rank, psi: []float64{0, math.Log(0.1), math.Log(0.1)}}
	op := (&problem{options: o, in: in}).operator()
	op.Set(sub.p.At(sub.psi))
	pre, err := precond.Build(ctx, "rpcholesky", op, rank, random.Key{Seed: 1})
	sub.pre = timed{pre, new(float64)}
	return sub, err
}

// operatorOf is one that gradients are taken with.
type operatorOf interface {
	posterior.Operator
	solve.SingleOperator
}

// estimator returns what takes gradients with an operator, as a chain does. A group applies the
// preconditioner, too.
func (s *subject) estimator(op operatorOf, budget *parallel.Budget) *posterior.Estimator {
	pre := s.pre
	if g, ok := op.(*shard.Group); ok {
		pre.LowRank = pre.Shared(g.Share)
	}
	return posterior.NewEstimator(posterior.EstimatorConfig{Problem: s.p, Operator: op, Probes: posterior.Whitened, Factor: pre,
		Solver: solve.New(op, solve.Options{Tolerance: 1e-3, Precond: pre, Mixed: true, Budget: budget})})
}

// gradient measures groups of some sizes, of which 1 is the operator alone.
func (o *options) gradient(n, s int, groups []int) (rows []gradientRow, err error) {
	ctx := context.Background()
	sub, err := o.subject(ctx, n, s)
	if err != nil {
		return nil, err
	}
	w, err := o.workers(n, slices.Max(groups)-1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	base := &problem{options: o, in: sub.p.Inputs}
	estimators := make([]*posterior.Estimator, len(groups))
	for i, size := range groups {
		local := base.operator()
		var op operatorOf = local
		if size > 1 {
			g := w.group(local, size)
			defer g.Close()
			op = g
		}
		estimators[i] = sub.estimator(op, local.Budget())
		if _, err := estimators[i].Gradient(ctx, sub.psi, random.Key{}, s-1, false); err != nil { // connects
			return nil, err
		}
		rows = append(rows, gradientRow{N: n, S: s, Rank: sub.rank, Members: size})
	}
	turns := make([][]gradientRow, len(groups))
	for turn := range o.reps {
		model := sizing.New(sizing.Config{Spec: sub.spec, Problem: sub.p, Rows: n, Worker: sizing.Worker{Cores: o.cores, Bandwidth: 1e15}})
		if err := model.Measure(ctx, sub.p, parallel.NewBudget(o.cores)); err != nil {
			return nil, err
		}
		psi := slices.Clone(sub.psi)
		psi[1] += 0.05 * float64(1-2*(turn%2)) // a chain moves, too
		for i, e := range estimators {
			r := rows[i]
			if err := o.takeGradient(ctx, &r, e, sub, psi, random.Key{Iter: 1 + turn}, w.members[:r.Members-1]); err != nil {
				return nil, err
			}
			r.plan(model)
			turns[i] = append(turns[i], r)
		}
	}
	for i := range rows {
		rows[i].summarise(turns[i])
	}
	return rows, nil
}

// takeGradient takes a gradient and measures it.
func (o *options) takeGradient(ctx context.Context, r *gradientRow, e *posterior.Estimator, sub *subject, psi []float64, key random.Key, members []*member) error {
	runtime.GC()
	before := make([]usage, len(members))
	var err error
	for i, m := range members {
		if before[i], err = m.usage(); err != nil {
			return err
		}
	}
	*sub.pre.seconds = 0
	used := cputime.Seconds()
	g, err := e.Gradient(ctx, psi, key, r.S-1, false)
	if err != nil {
		return err
	}
	r.Measured = cputime.Seconds() - used
	for i, m := range members {
		after, err := m.usage()
		if err != nil {
			return err
		}
		r.Measured += after.CPU - before[i].CPU
	}
	r.Iterations = g.Report.MeanIterations()
	r.MeasuredShare = *sub.pre.seconds / r.Measured
	return nil
}

// plan sets what the model says of the gradient.
func (r *gradientRow) plan(m *sizing.Model) {
	m.Work.Iterations = r.Iterations
	t := m.Gradient(r.Members)
	r.Planned, r.Factor = t.Processor, t.Processor/r.Measured
	r.PlannedShare = m.Rates.Apply * float64(r.N) * float64(r.S) * float64(r.Rank) * (r.Iterations + 1) / t.Processor
}

// summarise sets the medians of all turns.
func (r *gradientRow) summarise(turns []gradientRow) {
	median := func(of func(gradientRow) float64) float64 {
		var all []float64
		for _, t := range turns {
			all = append(all, of(t))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	r.Iterations = median(func(t gradientRow) float64 { return t.Iterations })
	r.Planned, r.Measured = median(func(t gradientRow) float64 { return t.Planned }), median(func(t gradientRow) float64 { return t.Measured })
	r.Factor = median(func(t gradientRow) float64 { return t.Factor })
	r.PlannedShare = median(func(t gradientRow) float64 { return t.PlannedShare })
	r.MeasuredShare = median(func(t gradientRow) float64 { return t.MeasuredShare })
	r.Least, r.Most = turns[0].Factor, turns[0].Factor
	for _, t := range turns {
		r.Least, r.Most = min(r.Least, t.Factor), max(r.Most, t.Factor)
	}
}
