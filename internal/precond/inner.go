package precond

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// An inner solve reduces the residual ten times, or ends after so many
// iterations: more is work that the outer iteration does not repay.
const (
	innerTolerance  = 0.1
	innerIterations = 100
)

// Inner is a preconditioner P whose systems are solved by an inner CG, to a low
// accuracy: it varies, so that the outer CG must be flexible, and it has no
// factor. It is safe for concurrent use.
type Inner struct {
	kind     string
	rank     int
	operator func() solve.Operator // P; each inner solver has its own
	options  solve.Options
	products atomic.Int64

	mu   sync.Mutex
	free []*solve.Solver
}

var _ solve.VariablePreconditioner = (*Inner)(nil)

// innerKinds are the preconditioners with an inner CG, by name.
var innerKinds = map[string]func(ctx context.Context, k Covariance, rank int) (operator func() solve.Operator, size int, err error){
	"regularized": regularized,
	"ski":         gridInterpolation,
}

// InnerKinds returns the names of the kinds that BuildInner takes.
func InnerKinds() []string { return names(innerKinds) }

// HasFactor reports whether a kind has a factor F, P = F·Fᵀ, in closed form.
func HasFactor(kind string) bool { _, inner := innerKinds[kind]; return !inner }

// BuildInner builds a preconditioner with an inner CG for K(θ) as it stands. The rank is the
// number of grid points of ski, or 0 for as many as there are rows; regularized has none.
func BuildInner(ctx context.Context, kind string, k Covariance, rank int) (*Inner, error) {
	build, ok := innerKinds[kind]
	if !ok {
		return nil, fmt.Errorf("unknown preconditioner %q: use one of %s", kind, strings.Join(InnerKinds(), ", "))
	}
	operator, size, err := build(ctx, k, rank)
	if err != nil {
		return nil, fmt.Errorf("%s preconditioner: %w", kind, err)
	}
	return &Inner{kind: kind, rank: size, operator: operator,
		options: solve.Options{Tolerance: innerTolerance, MaxIter: innerIterations, Budget: k.Budget()}}, nil
}

// Kind returns the kind of preconditioner.
func (p *Inner) Kind() string { return p.kind }

// Rank returns the number of grid points, or 0 if there is no grid.
func (p *Inner) Rank() int { return p.rank }

// Products returns the number of products with P so far.
func (p *Inner) Products() int64 { return p.products.Load() }

// Solve sets dst to about P⁻¹·v, which it must not overlap.
func (p *Inner) Solve(dst, v [][]float64) { _ = p.SolveContext(context.Background(), dst, v) }

// SolveContext is Solve under a context, whose error is the only one.
func (p *Inner) SolveContext(ctx context.Context, dst, v [][]float64) error {
	s := p.take()
	defer p.give(s)
	for _, c := range dst {
		clear(c)
	}
	rep, err := s.Solve(ctx, dst, v)
	p.products.Add(int64(rep.Products))
	return err
}

func (p *Inner) take() *solve.Solver {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := len(p.free) - 1; k >= 0 {
		s := p.free[k]
		p.free = p.free[:k]
		return s
	}
	return solve.New(p.operator(), p.options)
}

func (p *Inner) give(s *solve.Solver) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
}

// P is a preconditioner of any kind.
type P interface {
	solve.Preconditioner
	Kind() string
	Rank() int
}

// BuildAny builds a preconditioner with a factor or without one; a rank of 0 is
// the automatic one. If k is over a group (Spreader) the factor may be built and kept there.
func BuildAny(ctx context.Context, kind string, k Covariance, rank int, key random.Key) (P, error) {
	if slices.Contains(InnerKinds(), kind) {
		return BuildInner(ctx, kind, k, rank)
	}
	if rank == 0 {
		rank = AutoRank(k.Len())
	}
	if group, ok := k.(Spreader); ok && Pivoted(kind) {
		if p, err := buildOver(ctx, kind, group, rank, key); p != nil || err != nil {
			return p, err
		}
	}
	return Build(ctx, kind, k, rank, key)
}
