package sizing

import (
	"context"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Rates are what the parts of a gradient take one core of this machine, in processor seconds,
// measured while all that may compute do.
type Rates struct {
	InstructionSet string `json:"instruction_set"`
	// Of a pair of rows, at some numbers of columns, which increase.
	Columns []int     `json:"columns"`
	Double  []float64 `json:"double_seconds"`
	Single  []float64 `json:"single_seconds"`
	Forms   []float64 `json:"forms_seconds"`
	// Of a row and column: what CG does with vectors in an iteration.
	Vector float64 `json:"vector_seconds"`
	// Of a number: adding up the sums of a group's product.
	Reduce float64 `json:"reduce_seconds"`
	// Of an element of the preconditioner's factor, n×m, and a column: applying it, and making a
	// whitened probe of it. Of n·m²: building it. 0 if there is none.
	Apply float64 `json:"apply_seconds"`
	Probe float64 `json:"probe_seconds"`
	Build float64 `json:"build_seconds"`
}

// SampleRows is how many rows rates are measured on, if there are as many.
const SampleRows = 16_384

// Constants of measurements.
const (
	sampleRank  = 512
	leastSpent  = 0.05 // processor seconds
	sampleSteps = 20   // of CG
)

// sample is what rates are measured on.
type sample struct {
	p      *posterior.Problem
	op     *cmvp.Operator
	n, s   int
	v, dst [][]float64
}

// Measure measures the rates of what is planned, on a problem that is the run's or one like it.
// It takes a few seconds.
func (m *Model) Measure(ctx context.Context, p *posterior.Problem, budget *parallel.Budget) (err error) {
	columns := []int{1, m.Work.Columns, 1 + driver.PrepareProbes}
	slices.Sort(columns)
	m.Rates, err = measure(ctx, p, m.Work.Columns, slices.Compact(columns), m.spec.Solver.Preconditioner.Kind, m.Work.Rank, budget)
	return err
}

// measure measures products at some numbers of columns, which increase, and all else at s. The
// preconditioner is of the given kind, "none" for none, and of about the given rank.
func measure(ctx context.Context, p *posterior.Problem, s int, columns []int, kind string, rank int, budget *parallel.Budget) (*Rates, error) {
	if err := budget.Acquire(ctx); err != nil {
		return nil, err
	}
	defer budget.Release()
	isa, err := cmvp.ISA()
	if err != nil {
		return nil, err
	}
	r := &Rates{InstructionSet: isa, Columns: columns}
	n := min(len(p.Y), SampleRows)
	rows := make([]int, n)
	for i := range rows {
		rows[i] = i * len(p.Y) / n
	}
	p = p.Subset(rows)
	m := &sample{p: p, op: cmvp.New(p.Inputs, p.Covariance, budget), n: n, s: s}
	m.op.Set(p.At(make([]float64, p.NumParams())))
	most := slices.Max(columns)
	m.v, m.dst = solve.Columns(n, most), solve.Columns(n, most)
	for c := range m.v {
		random.Rademacher(random.Key{}.Stream(random.Calibration, c), m.v[c])
	}
	for _, c := range columns {
		if err := m.products(ctx, r, c); err != nil {
			return nil, err
		}
	}
	m.v, m.dst = m.v[:s], m.dst[:s]
	if err := m.vectors(ctx, r, budget); err != nil {
		return nil, err
	}
	m.reduce(r)
	if kind == "none" || !precond.HasFactor(kind) {
		return r, nil
	}
	return r, m.preconditioner(ctx, r, kind, min(rank, sampleRank), budget)
}

// spent returns the processor seconds that f takes, from as many calls as leastSpent needs.
func spent(f func() error) (float64, error) {
	began := cputime.Seconds()
	for times := 1; ; times++ {
		if err := f(); err != nil {
			return 0, err
		}
		if used := cputime.Seconds() - began; used >= leastSpent {
			return used / float64(times), nil
		}
	}
}

// products measures products and forms of some columns.
func (m *sample) products(ctx context.Context, r *Rates, s int) error {
	pairs := float64(m.n) * float64(m.n)
	v, dst, group := m.v[:s], m.dst[:s], make([]int, s)
	for c := range group { // as in a gradient: y alone, then the probes
		group[c] = min(c, 1)
	}
	for _, x := range []struct {
		to *[]float64
		do func() error
	}{
		{&r.Double, func() error { return m.op.Mul(ctx, dst, v) }},
		{&r.Single, func() error { return m.op.MulSingle(ctx, dst, v) }},
		{&r.Forms, func() error { _, err := m.op.Forms(ctx, v, v, group, group[s-1]+1); return err }},
	} {
		t, err := spent(x.do)
		if err != nil {
			return err
		}
		*x.to = append(*x.to, t/pairs)
	}
	return nil
}

// stub is a diagonal matrix in an operator's place, on which CG does not converge in some
// steps.
type stub struct{ d []float64 }

func (k stub) Len() int { return len(k.d) }

func (k stub) Mul(_ context.Context, dst, v [][]float64) error {
	for c := range v {
		for i, d := range k.d {
			dst[c][i] = d * v[c][i]
		}
	}
	return nil
}

// vectors measures what CG does beside its products.
func (m *sample) vectors(ctx context.Context, r *Rates, budget *parallel.Budget) error {
	k := stub{make([]float64, m.n)}
	for i := range k.d {
		k.d[i] = 1 + float64(i)
	}
	product, err := spent(func() error { return k.Mul(ctx, m.dst, m.v) })
	if err != nil {
		return err
	}
	solver := solve.New(k, solve.Options{Tolerance: 1e-12, MaxIter: sampleSteps, Budget: budget})
	x, products := solve.Columns(m.n, m.s), 0
	all, err := spent(func() error {
		for c := range x {
			clear(x[c])
		}
		rep, err := solver.Solve(ctx, x, m.v)
		products = rep.Products
		return err
	})
	r.Vector = max(0, all/float64(products)-product) / float64(m.n*m.s)
	return err
}

// reduce measures how the sums of units are added up.
func (m *sample) reduce(r *Rates) {
	sums := make([]float64, cmvp.UnitSums(m.n, m.s, 0, cmvp.NewGrid(m.n).Units()))
	factor := cmvp.Scales(m.v, cmvp.Double)
	t, _ := spent(func() error { m.op.ReduceUnits(m.dst, sums, m.v, factor); return nil })
	r.Reduce = t / float64(len(sums))
}

// preconditioner measures how one is built and applied.
func (m *sample) preconditioner(ctx context.Context, r *Rates, kind string, rank int, budget *parallel.Budget) error {
	if kind == "auto" || kind == "svd" { // whose columns are products, which are counted apart
		kind = "rpcholesky"
	}
	var pre *precond.LowRank
	build, err := spent(func() (err error) {
		pre, err = precond.Build(ctx, kind, m.op, min(rank, m.n/2), random.Key{})
		return err
	})
	if err != nil || pre.Rank() == 0 {
		return err
	}
	elements := float64(m.n) * float64(pre.Rank())
	r.Build = build / (elements * float64(pre.Rank()))
	apply, _ := spent(func() error { pre.Solve(m.dst, m.v); return nil })
	r.Apply = apply / (elements * float64(m.s))
	probe, _ := spent(func() error { pre.MulRoot(m.dst, m.v); pre.SolveRootTrans(m.dst, m.v); return nil })
	r.Probe = probe / (elements * float64(m.s))
	return nil
}

// at returns a rate at some number of columns, on the line through the two that were measured
// nearest.
func (r *Rates) at(rates []float64, columns int) float64 {
	last := len(r.Columns) - 1
	if last == 0 {
		return rates[0]
	}
	i := 1
	for i < last && r.Columns[i] < columns {
		i++
	}
	slope := (rates[i] - rates[i-1]) / float64(r.Columns[i]-r.Columns[i-1])
	return max(rates[i-1]+slope*float64(columns-r.Columns[i-1]), 0)
}
