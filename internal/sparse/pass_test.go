package sparse

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// elsewhere computes passes by another approximation over the same rows, the last block first.
type elsewhere struct {
	a     *Approximation
	calls int
}

func (e *elsewhere) Pays(*Approximation, PassKind) bool { return true }

func (e *elsewhere) Sum(ctx context.Context, a *Approximation, p *Pass, take func(int, []float64)) error {
	e.calls++
	e.a.SetInducing(p.Z)
	e.a.Set(a.Function())
	parts := make([][]float64, Blocks(a.Len()))
	for i := len(parts) - 1; i >= 0; i-- {
		parts[i] = make([]float64, e.a.Size(p, i))
		if err := e.a.Compute(ctx, p, i, parts[i]); err != nil {
			return err
		}
		if !a.CheckPart(p, i, parts[i]) {
			panic("a part that is right is said to be wrong")
		}
	}
	for i, part := range parts {
		take(i, part)
	}
	return nil
}

// Whoever computes the blocks, values and derivatives have the same bits.
func TestPassesElsewhere(t *testing.T) {
	for _, e := range examples(t, 9000)[1:3] { // three blocks
		z := moved(e.x, 21)
		row := func(i int, mean, variance float64) (value, score, weight float64) {
			y, rate := math.Round(math.Abs(e.y[i])), math.Exp(mean+variance/2)
			return y*mean - rate, y - rate, rate
		}
		values := func(kind Kind, s Summer) [][]float64 {
			f := e.cov.At(e.theta)
			a := New(kind, e.cov, e.x, z, parallel.NewBudget(2))
			a.Share(s)
			v, err := a.Gradient(ctx, f, e.noise, e.y, true)
			if err != nil {
				t.Fatal(err)
			}
			all := [][]float64{{v.LogDensity}, v.Theta, v.Noise, v.Inducing}
			if kind != SGPR {
				return all
			}
			if v, err = NewVariational(a).Gradient(ctx, f, row, true); err != nil {
				t.Fatal(err)
			}
			j, err := a.Joint(ctx, f, row, v.Inducing[:z.Len()])
			if err != nil {
				t.Fatal(err)
			}
			theta, err := j.Theta(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return append(all, []float64{v.LogDensity, j.Value}, v.Theta, v.Inducing, v.Mean, v.Variance, j.V, j.Mean, j.Variance, theta)
		}
		for _, kind := range Kinds() {
			other := &elsewhere{a: New(DTC, e.cov, e.x, e.x.Select([]int{1, 2}), parallel.NewBudget(1))}
			got, want := values(kind, other), values(kind, nil)
			if !slices.EqualFunc(got, want, slices.Equal) || other.calls == 0 {
				t.Errorf("%s, %s: %v, want %v", e.name, kind, got[:2], want[:2])
			}
		}
	}
}

// A part that is not finite, or a Gram matrix whose trace is not what q_ii makes of it, is said to be wrong.
func TestCheckPart(t *testing.T) {
	e := examples(t, 300)[0]
	a := New(SGPR, e.cov, e.x, moved(e.x, 7), parallel.NewBudget(1))
	a.Set(e.cov.At(e.theta))
	uu, err := newFactor(a.inducing())
	if err != nil {
		t.Fatal(err)
	}
	p := &Pass{Kind: Gram, Z: a.Inducing(), Shared: [][]float64{slices.Concat(uu.columns()...)}, Rows: [][]float64{ones(300), e.y}}
	part := make([]float64, a.Size(p, 0))
	if err := a.Compute(ctx, p, 0, part); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(){"": func() {}, "trace": func() { part[0] *= 1.001 }, "infinite": func() { part[3] = math.Inf(1) }} {
		before := slices.Clone(part)
		change()
		if got := a.CheckPart(p, 0, part); got != (name == "") {
			t.Errorf("%q: right is %v", name, got)
		}
		copy(part, before)
	}
}
