package precond

import (
	"errors"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// latentCovariance returns K_f.
func latentCovariance(op *cmvp.Operator) *mat.SymDense {
	rows := make([]int, op.Len())
	for i := range rows {
		rows[i] = i
	}
	return covariance(op, rows)
}

// projection returns K_XU K_UU⁻¹ K_UX.
func projection(k mat.Symmetric, u []int) *mat.Dense {
	n := k.SymmetricDim()
	kxu, kuu := mat.NewDense(n, len(u), nil), mat.NewDense(len(u), len(u), nil)
	for j, q := range u {
		for i := range n {
			kxu.Set(i, j, k.At(i, q))
		}
		for i, p := range u {
			kuu.Set(i, j, k.At(p, q))
		}
	}
	var x, q mat.Dense
	var bad mat.Condition
	if err := x.Solve(kuu, kxu.T()); err != nil && !errors.As(err, &bad) {
		panic(err)
	}
	q.Mul(kxu, &x)
	return &q
}

// full returns P from its factor.
func full(p *LowRank, n int) *mat.Dense {
	f := apply(p.MulRoot, n)
	var m mat.Dense
	m.Mul(f, f.T())
	return &m
}

// Every kind is its formula, computed by dense algebra.
func TestFormulas(t *testing.T) {
	const n, rank = 80, 12
	op := operator(n, 2, 2, kernel.Matern32, 0.8, 0.05)
	k := latentCovariance(op)
	key := random.Key{Seed: 7}
	build := func(kind string) *mat.Dense {
		p, err := Build(t.Context(), kind, op, rank, key)
		if err != nil {
			t.Fatal(err)
		}
		return full(p, n)
	}
	check := func(kind string, got mat.Matrix, want func(i, j int) float64) {
		t.Helper()
		m := mat.NewDense(n, n, nil)
		for i := range n {
			for j := range n {
				m.Set(i, j, want(i, j))
			}
			m.Set(i, i, m.At(i, i)+op.Noise()[i])
		}
		if e := distance(got, m); e > 1e-8 {
			t.Errorf("%s: P differs from its formula by %g", kind, e)
		}
	}
	u := key.Stream(random.Pivot, 0).Perm(n)[:rank]
	q := projection(k, u)
	block := make([]int, n)
	clusters, err := Clusters(t.Context(), op.Inputs(), op.Function(), rank, key, op.Budget())
	if err != nil {
		t.Fatal(err)
	}
	for b, rows := range clusters {
		for _, r := range rows {
			block[r] = b
		}
	}
	check("nystrom", build("nystrom"), q.At)
	check("fitc", build("fitc"), func(i, j int) float64 {
		if i == j {
			return k.At(i, j)
		}
		return q.At(i, j)
	})
	check("pitc", build("pitc"), func(i, j int) float64 {
		if block[i] == block[j] {
			return k.At(i, j)
		}
		return q.At(i, j)
	})
	check("blockjacobi", build("blockjacobi"), func(i, j int) float64 {
		if block[i] == block[j] {
			return k.At(i, j)
		}
		return 0
	})
	// A pivoted Cholesky factor is the projection on its pivots, which are
	// where it is exact.
	for _, kind := range []string{"cholesky", "rpcholesky"} {
		p := build(kind)
		var pivots []int
		for i := range n {
			if i != 1 && math.Abs(p.At(i, i)-op.Noise()[i]-k.At(i, i)) < 1e-10 { // row 1 repeats row 0
				pivots = append(pivots, i)
			}
		}
		if len(pivots) < rank {
			t.Errorf("%s: exact at %d rows, want %d", kind, len(pivots), rank)
		}
		check(kind, p, projection(k, pivots).At)
	}
	// The SVD's trace is that of the best approximation of its rank but for a
	// few percent.
	var eig mat.EigenSym
	eig.Factorize(k, false)
	best := 0.0
	for _, s := range eig.Values(nil)[n-rank:] {
		best += s
	}
	got := -sum(op.Noise())
	svd := build("svd")
	for i := range n {
		got += svd.At(i, i)
	}
	if got > best*(1+1e-9) || got < 0.97*best {
		t.Errorf("svd: trace %v, the best is %v", got, best)
	}
}

func sum(x []float64) float64 {
	s := 0.0
	for _, v := range x {
		s += v
	}
	return s
}

// The mean of ΦΦᵀ over independent features is K_f: each element within 5
// standard errors, at most σ/√(pairs·builds) each (false alarms below 10⁻⁴ for
// the whole matrix; the seed is fixed).
func TestRandomFeaturesAreUnbiased(t *testing.T) {
	const n, builds, rank = 12, 300, 20
	op := operator(n, 2, 1, kernel.Matern52, 1, 0.1)
	mean := mat.NewDense(n, n, nil)
	for b := range builds {
		p, err := Build(t.Context(), "fourier", op, rank, random.Key{Seed: uint64(b)})
		if err != nil {
			t.Fatal(err)
		}
		mean.Add(mean, full(p, n))
	}
	k := latentCovariance(op)
	tol := 5 * op.Function().Scale() / math.Sqrt(builds*rank/2)
	for i := range n {
		for j := range i {
			if e := math.Abs(mean.At(i, j)/builds - k.At(i, j)); e > tol {
				t.Errorf("(%d,%d) is off by %v", i, j, e)
			}
		}
	}
}

// Proposing pivots by the block does not change their distribution: those of
// the first two in order, χ² with 19 degrees of freedom, false alarm 10⁻⁶.
func TestPivotsHaveTheirDistribution(t *testing.T) {
	const n, builds = 5, 4000
	x := []float64{0, 0.3, 0.5, 2, 2.2}
	op := cmvp.New(kernel.NewInputs(n, 1, x), kernel.Single(kernel.RBF, 1, false), parallel.NewBudget(1))
	op.Set([]float64{2, 0.5}, []float64{0.1})
	k := latentCovariance(op)
	var seen [n][n]float64
	for b := range builds {
		pt, err := randomCholesky(t.Context(), op, 2, random.Key{Seed: uint64(b)})
		if err != nil {
			t.Fatal(err)
		}
		cols := pivoted{l: pt.l}.cols()
		first := slices.Index(cols[0], slices.Max(cols[0]))
		second, least := 0, math.Inf(1)
		for i := range n {
			if r := math.Abs(k.At(i, i) - cols[0][i]*cols[0][i] - cols[1][i]*cols[1][i]); i != first && r < least {
				second, least = i, r
			}
		}
		seen[first][second]++
	}
	chi2 := 0.0
	for i := range n {
		left, total := [n]float64{}, 0.0
		for j := range n {
			left[j] = k.At(j, j) - k.At(i, j)*k.At(i, j)/k.At(i, i)
			total += left[j]
		}
		for j := range n {
			if i != j {
				want := builds * left[j] / total / n
				chi2 += (seen[i][j] - want) * (seen[i][j] - want) / want
			}
		}
	}
	if p := (distuv.ChiSquared{K: n*(n-1) - 1}).Survival(chi2); p < 1e-6 {
		t.Errorf("χ² = %v, p = %g", chi2, p)
	}
}

// Clusters are a partition into sizes that differ by one at most, of rows that
// are near each other: less than a quarter of the variance is within them.
func TestClusters(t *testing.T) {
	const n, size = 1003, 50
	op := operator(n, 2, 1, kernel.RBF, 1, 0.1)
	in := op.Inputs()
	clusters, err := Clusters(t.Context(), in, op.Function(), size, random.Key{Seed: 1}, op.Budget())
	if err != nil {
		t.Fatal(err)
	}
	if len(clusters) != 21 {
		t.Fatalf("%d clusters", len(clusters))
	}
	seen := make([]bool, n)
	within, total := 0.0, 0.0
	spread := func(rows []int) float64 {
		s := 0.0
		for k := range 2 {
			m := 0.0
			for _, r := range rows {
				m += in.Row(r)[k] / float64(len(rows))
			}
			for _, r := range rows {
				s += (in.Row(r)[k] - m) * (in.Row(r)[k] - m)
			}
		}
		return s
	}
	var all []int
	for _, c := range clusters {
		if len(c) != 47 && len(c) != 48 || !slices.IsSorted(c) {
			t.Errorf("a cluster of %d rows, sorted: %v", len(c), slices.IsSorted(c))
		}
		for _, r := range c {
			if seen[r] {
				t.Errorf("row %d is in two clusters", r)
			}
			seen[r] = true
		}
		within += spread(c)
		all = append(all, c...)
	}
	if len(all) != n {
		t.Errorf("%d rows in clusters", len(all))
	}
	if total = spread(all); within > 0.25*total {
		t.Errorf("%v of the variance is within clusters", within/total)
	}
}
