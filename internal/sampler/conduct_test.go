package sampler

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/metropolis"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/surrogate"
)

// Where two ψ are one point of a reduction, what it reduces has one value, by dense algebra. A scale of
// all variances is forgotten, unless a part of K is known: there it must not be.
func TestReductionsHoldOfK(t *testing.T) {
	m := Model{Rows: 3, Params: param.List{{Role: param.Variance}, {Role: param.Rate}, {Role: param.Noise}}}
	for _, known := range []float64{0, 0.7} {
		m.Offset = known > 0
		of := func(psi []float64) (logDet, logQuad float64) {
			k := mat.NewSymDense(3, nil)
			for i := range 3 {
				for j := range i + 1 {
					k.SetSym(i, j, math.Exp(psi[0]-math.Exp(psi[1])*float64((i-j)*(i-j))))
				}
				k.SetSym(i, i, k.At(i, i)+math.Exp(psi[2])/float64(1+i)+known*float64(i))
			}
			var chol mat.Cholesky
			if !chol.Factorize(k) {
				t.Fatal("K is singular")
			}
			y, x := mat.NewVecDense(3, []float64{1, -2, 0.5}), new(mat.VecDense)
			if err := chol.SolveVecTo(x, y); err != nil {
				t.Fatal(err)
			}
			return chol.LogDet(), math.Log(mat.Dot(y, x))
		}
		logDet, logQuad := reductions(m, 1)
		psi, scaled := []float64{0.3, -1, -2}, []float64{1.1, -1, -1.2}
		d, q := of(psi)
		ds, qs := of(scaled)
		for name, x := range map[string]struct {
			by   *surrogate.Reduction
			a, b float64
		}{"log|K|": {logDet, d, ds}, "log yᵀK⁻¹y": {logQuad, q, qs}} {
			one := floats.EqualApprox(x.by.Point(psi), x.by.Point(scaled), 1e-12)
			a, b := x.by.Value(psi, x.a), x.by.Value(scaled, x.b)
			if one != (known == 0) || one && math.Abs(a-b) > 1e-10 {
				t.Errorf("known noise %g: %s at one point: %v, %g and %g", known, name, one, a, b)
			}
		}
	}
}

// A run whose pilots an earlier version made goes on with proposals as theirs; one without pilots, or whose pilots are
// marked, looks for tails.
func TestWhoLooksForTails(t *testing.T) {
	pilot := func(first ...float64) chains.Staging {
		return chains.Staging{Stage: chains.Stage{Kind: pilotStage, Shared: [][]float64{first, {0}, {1, 7, 0, 1}}}}
	}
	for _, c := range []struct {
		name   string
		stages []chains.Staging
		short  bool
		once   bool
	}{
		{"no pilot yet", nil, false, false},
		{"a marked one", []chains.Staging{pilot(bySolves, 0, searches)}, false, false},
		{"one that searched once", []chains.Staging{pilot(bySolves, 0, reaching)}, false, true},
		{"one of before", []chains.Staging{pilot(bySolves, 0)}, true, true},
	} {
		k := &conductor{plan: &chains.Plan{Names: []string{"a"}}, in: &chains.Conducting{Stages: c.stages}, count: map[string]int{}}
		if err := k.read(); err != nil {
			t.Fatal(err)
		}
		if k.short != c.short || k.once != c.once {
			t.Errorf("%s: short is %t, once %t", c.name, k.short, k.once)
		}
	}
}

// Of draws of the target itself no tail is missed. Of proposals that are narrower than it nearly all of a variance hangs on a few: of a
// normal of half the width weights have no variance. Fewer than a thousand tell nothing.
func TestTail(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	k := &conductor{plan: &chains.Plan{Names: []string{"a", "b"}}}
	list := func(n int, sd float64) *metropolis.Proposals {
		p := &metropolis.Proposals{}
		for range n {
			x := []float64{r.NormFloat64(), sd * r.NormFloat64()}
			p.X = append(p.X, x)
			p.Target = append(p.Target, -(x[0]*x[0]+x[1]*x[1])/2)
			p.Proposal = append(p.Proposal, -(x[0]*x[0]+x[1]*x[1]/(sd*sd))/2)
		}
		return p
	}
	for _, c := range []struct {
		n          int
		sd, lo, hi float64
		of         int
	}{{2000, 1, 0, 0.03, -1}, {2000, 1.5, 0, 0.03, -1}, {2000, 0.5, 0.2, 1, 1}, {999, 0.5, 0, 0, 0}} {
		share, of, err := k.tail(list(c.n, c.sd))
		if err != nil || share < c.lo || share > c.hi || c.of >= 0 && of != c.of {
			t.Errorf("%d proposals of width %g: %v of parameter %d, want %v to %v: %v", c.n, c.sd, share, of, c.lo, c.hi, err)
		}
	}
}
