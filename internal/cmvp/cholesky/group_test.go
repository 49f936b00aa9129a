package cholesky

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// evalOf evaluates strips of a stored matrix.
func evalOf(k *mat.SymDense) func(p Strip, s []float64) {
	return func(p Strip, s []float64) {
		for j := p.JLo; j < p.JHi; j++ {
			for i := p.ILo; i < p.IHi; i++ {
				s[(j-p.JLo)*tile.Size+i-p.ILo] = k.At(i, j)
			}
		}
	}
}

type groupResult struct {
	logDet float64
	quad   []float64
}

// factorTogether factors k in a group within the process.
func factorTogether(ctx context.Context, g grid, isa tile.ISA, size int, k *mat.SymDense, y [][]float64) ([]*Member, []groupResult, error) {
	members, results := make([]*Member, size), make([]groupResult, size)
	group, ctx := errgroup.WithContext(ctx)
	for r, t := range NewLocal(size) {
		group.Go(func() error {
			b := parallel.NewBudget(1 + r%2)
			members[r] = newMember(g, isa, len(y), t, b)
			if err := members[r].Fill(ctx, evalOf(k)); err != nil {
				return err
			}
			var err error
			results[r].logDet, results[r].quad, err = members[r].Factor(ctx, y)
			return err
		})
	}
	return members, results, group.Wait()
}

// Groups of any size compute the bits of a factor in one process, and all members the same
// values.
func TestGroup(t *testing.T) {
	eachISA(t, func(t *testing.T, isa tile.ISA) {
		for _, n := range []int{5, 100, 413} {
			k := covariance(n, 0.01)
			rnd := rand.New(rand.NewPCG(1, 1))
			y := make([][]float64, 3)
			for c := range y {
				y[c] = make([]float64, n)
				for i := range y[c] {
					y[c][i] = rnd.NormFloat64()
				}
			}
			for _, g := range grids(n) {
				b := parallel.NewBudget(2)
				alone := filled(t, g, isa, k, b)
				if err := alone.Factor(ctx, b); err != nil {
					t.Fatal(err)
				}
				var want groupResult
				for _, size := range []int{1, 2, 3, 4} {
					t.Run(fmt.Sprintf("n=%d/edge=%d/size=%d", n, g.edge, size), func(t *testing.T) {
						members, results, err := factorTogether(ctx, g, isa, size, k, y)
						if err != nil {
							t.Fatal(err)
						}
						for at, block := range alone.blocks {
							_, j := pair(at)
							got := members[j%size].blocks[at]
							for e, x := range block {
								if got[e] != x {
									t.Fatalf("block %d: element %d is %v, want %v", at, e, got[e], x)
								}
							}
						}
						if size == 1 {
							want = results[0]
							if results[0].logDet != alone.LogDet() {
								t.Errorf("log|K| is %v, want %v", results[0].logDet, alone.LogDet())
							}
						}
						for r, got := range results {
							if fmt.Sprintf("%x", got) != fmt.Sprintf("%x", want) {
								t.Errorf("member %d: %+v, want %+v", r, got, want)
							}
						}
					})
				}
				// yᵀK⁻¹y against the solution of a matrix in one process.
				for c := range y {
					x := append([]float64(nil), y[c]...)
					if err := alone.Solve(ctx, b, [][]float64{x}); err != nil {
						t.Fatal(err)
					}
					quad := mat.Dot(mat.NewVecDense(n, x), mat.NewVecDense(n, y[c]))
					if d := want.quad[c]/quad - 1; d > 1e-11 || d < -1e-11 {
						t.Errorf("n=%d: yᵀK⁻¹y is %v, want %v", n, want.quad[c], quad)
					}
				}
			}
		}
	})
}

// All members learn that a matrix is not positive definite, whoever finds it.
func TestGroupNotPositive(t *testing.T) {
	isas := tile.Available()
	for _, row := range []int{0, 40, 250, 299} {
		k := covariance(300, 0.1)
		k.SetSym(row, row, -1)
		for _, size := range []int{1, 2, 3} {
			members := make([]*Member, size)
			errs := make([]error, size)
			var group errgroup.Group
			for r, tr := range NewLocal(size) {
				group.Go(func() error {
					members[r] = newMember(grid{n: 300, edge: 32, count: 10}, isas[len(isas)-1], 1, tr, parallel.NewBudget(1))
					if err := members[r].Fill(ctx, evalOf(k)); err != nil {
						return err
					}
					_, _, errs[r] = members[r].Factor(ctx, [][]float64{make([]float64, 300)})
					return nil
				})
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			for r, err := range errs {
				var not *NotPositive
				if !errors.As(err, &not) || not.Row != row {
					t.Errorf("row %d, member %d of %d: %v", row, r, size, err)
				}
			}
		}
	}
}

// broken is a transport that fails after some messages.
type broken struct {
	Transport
	left int
}

func (b *broken) Send(ctx context.Context, to int, data []float64) error {
	if b.left--; b.left < 0 {
		return errors.New("the cable is cut")
	}
	return b.Transport.Send(ctx, to, data)
}

// A member whose transport fails says so; the others end with their context, and nobody
// is left behind (goleak).
func TestGroupBroken(t *testing.T) {
	isas := tile.Available()
	k := covariance(300, 0.1)
	for _, after := range []int{0, 3, 20} {
		group, ctx := errgroup.WithContext(ctx)
		for r, tr := range NewLocal(3) {
			group.Go(func() error {
				if r == 1 {
					tr = &broken{tr, after}
				}
				m := newMember(grid{n: 300, edge: 32, count: 10}, isas[0], 1, tr, parallel.NewBudget(1))
				if err := m.Fill(ctx, evalOf(k)); err != nil {
					return err
				}
				_, _, err := m.Factor(ctx, [][]float64{make([]float64, 300)})
				return err
			})
		}
		if err := group.Wait(); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("after %d messages: %v", after, err)
		}
	}
}

func TestMemberBytes(t *testing.T) {
	const n, size = 5000, 3
	for r, tr := range NewLocal(size) {
		m := NewMember(n, 2, tr, parallel.NewBudget(1))
		want := int64(len(m.inv))
		for _, b := range m.blocks {
			want += int64(len(b))
		}
		for _, s := range m.sides {
			want += int64(len(s))
		}
		if got := MemberBytes(n, 2, r, size); got < 8*want || got > 2*8*want {
			t.Errorf("member %d: %d bytes, and it holds %d before it receives", r, got, 8*want)
		}
	}
}
