package cmvp

import (
	"context"
	"math"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// plain is another engine: K element by element, for what it does not take from the
// tiles.
type plain struct {
	*tiles
	in    *kernel.Inputs
	f     *kernel.Function
	noise []float64
	calls []string
}

func (e *plain) Set(f *kernel.Function, noise []float64) {
	e.calls = append(e.calls, "set")
	e.f, e.noise = f, noise
	e.tiles.Set(f, noise)
}

func (e *plain) Mul(_ context.Context, dst, v [][]float64, p Precision) error {
	e.calls = append(e.calls, map[Precision]string{Double: "double", Single: "single"}[p])
	for c := range dst {
		for i := range dst[c] {
			sum := e.noise[i] * v[c][i]
			for j := range v[c] {
				sum += e.f.Value(e.in.Row(i), e.in.Row(j)) * v[c][j]
			}
			dst[c][i] = sum
		}
	}
	return nil
}

func (e *plain) CrossMatrix(_ context.Context, rows [][]float64, points *kernel.Inputs, _ []int) error {
	e.calls = append(e.calls, "cross")
	for r := range rows {
		for j := range rows[r] {
			rows[r][j] = e.f.Value(points.Row(r), e.in.Row(j))
		}
	}
	return nil
}

func (e *plain) Kept() int64 { return 7 }

// An operator computes with whatever engine it is given, and counts.
func TestOperatorOverAnotherEngine(t *testing.T) {
	ctx := context.Background()
	p := problemOf(parsed(t, sums[1]), 300, 2)
	b := parallel.NewBudget(1)
	e := &plain{tiles: newTiles(p.in, p.cov, false, b, tile.Portable), in: p.in}
	o, want := NewOn(e, p.in, p.cov, b), p.operator(1, tile.Portable)
	o.Set(p.theta, p.noise)
	got, ref := zeros(300, 2), zeros(300, 2)
	for _, m := range multiplies {
		if err := m.mul(o)(ctx, got, p.v); err != nil {
			t.Fatal(err)
		}
		if err := want.Mul(ctx, ref, p.v); err != nil {
			t.Fatal(err)
		}
		for c := range got {
			for i := range got[c] {
				if math.Abs(got[c][i]-ref[c][i]) > 1e-11 {
					t.Fatalf("row %d is %v, want %v", i, got[c][i], ref[c][i])
				}
			}
		}
	}
	if _, err := o.CrossMatrix(ctx, p.in.Select([]int{1})); err != nil {
		t.Fatal(err)
	}
	if c := o.Counts(); c.Products != 2 || c.Singles != 1 || c.Read != 7 {
		t.Errorf("counted %+v", c)
	}
	if len(e.calls) != 4 || e.calls[0] != "set" || e.calls[1] != "double" || e.calls[2] != "single" || e.calls[3] != "cross" {
		t.Errorf("the engine was asked for %v", e.calls)
	}
}
