package precond

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Work is what a preconditioner is to be chosen for.
type Work struct {
	Solves    int     // of a block of right-hand sides, each at another θ near by
	Columns   int     // right-hand sides of a block
	Tolerance float64 // relative residual
}

// Trial is what a candidate was found to cost. Work is counted, not timed, so
// that the choice is a function of the data and θ alone.
type Trial struct {
	Kind       string  `json:"kind"`
	Rank       int     `json:"rank"`
	Iterations float64 `json:"iterations"` // of a solve, extrapolated to the tolerance
	Flops      float64 `json:"flops"`      // to build it and to solve all
}

// Constants of the choice.
const (
	trialTolerance  = 1e-2
	trialIterations = 200
	// A higher rank than the cheapest is taken for up to a tenth more work:
	// whitened probes are the less noisy for it, which is not counted.
	trialSlack = 1.1
	maxLadder  = 16 // times √n is the highest rank
	// elementFlops is what an element of K costs, for each leaf, beyond 3 for each
	// input.
	elementFlops = 20
)

// candidates are the preconditioners that are compared, with their trials.
type candidates struct {
	pre    []solve.Preconditioner
	trials []Trial
}

// add builds those of a kind for the given ranks.
func (c *candidates) add(ctx context.Context, kind string, k Covariance, ranks []int, key random.Key) error {
	put := func(p solve.Preconditioner, rank int) {
		c.pre, c.trials = append(c.pre, p), append(c.trials, Trial{Kind: kind, Rank: rank})
	}
	if !Nested(kind) {
		for _, r := range ranks {
			p, err := Build(ctx, kind, k, r, key)
			if err != nil {
				return err
			}
			put(p, r)
		}
		return nil
	}
	p, err := Build(ctx, kind, k, slices.Max(ranks), key)
	if err != nil {
		return err
	}
	for _, r := range ranks {
		if r >= p.Own() {
			put(p, p.Own())
			break
		}
		put(p.First(r), r)
	}
	return nil
}

// Choose builds preconditioners of several ranks for k as it stands, and finds the one that
// takes the least work for solves at a θ near by. They are of the given kind. If that is
// "auto", they are of three kinds: RPCholesky is quick to build; the truncated SVD needs the
// fewest iterations for its rank where length-scales are long; PITC is best where they are
// short. All candidates solve one system together, to a residual of trialTolerance, and share
// the products. They are returned with the chosen one first.
//
// near returns K at that θ, which may be k itself: it is called once all are built.
// It should be as far away as solves will be: a P that is K itself at θ needs no
// iterations there, but elsewhere no fewer than one of lower rank.
func Choose(ctx context.Context, kind string, k Covariance, near func() solve.Operator, w Work, key random.Key) ([]Trial, error) {
	var c candidates
	n := k.Len()
	type climb struct {
		kind string
		most int
	}
	kinds := []climb{{kind, 4}}
	switch {
	case kind == "auto":
		kinds = []climb{{"rpcholesky", maxLadder}, {"svd", maxLadder}, {"pitc", 2}}
	case Nested(kind):
		kinds = []climb{{kind, maxLadder}}
	}
	for _, x := range kinds {
		if err := c.add(ctx, x.kind, k, ladder(n, x.most), key); err != nil {
			return nil, err
		}
	}

	b := make([]float64, n)
	random.Rademacher(key.Stream(random.Calibration, 0), b)
	rep, err := solve.New(near(), solve.Options{Tolerance: trialTolerance, MaxIter: trialIterations, PerColumn: c.pre, Budget: k.Budget()}).
		Solve(ctx, solve.Columns(n, len(c.pre)), slices.Repeat([][]float64{b}, len(c.pre)))
	if err != nil {
		return nil, err
	}
	cov := k.Function().Covariance()
	element := float64(len(cov.Leaves()) * (elementFlops + 3*cov.Dim()))
	for i := range c.trials {
		t := &c.trials[i]
		rate := -math.Log(min(rep.Residuals[i], 0.999)) / float64(max(1, rep.Iterations[i]))
		t.Iterations = math.Ceil(-math.Log(w.Tolerance) / rate)
		t.Flops = t.flops(n, element, w)
	}
	return ordered(c.trials), nil
}

// ordered returns the trials by their work, but for the chosen one, the first.
func ordered(trials []Trial) []Trial {
	slices.SortStableFunc(trials, func(a, b Trial) int { return cmp.Compare(a.Flops, b.Flops) })
	best := trials[0]
	for i, t := range trials {
		if t.Kind == best.Kind && t.Rank > trials[0].Rank && t.Flops <= trialSlack*best.Flops {
			trials[0], trials[i] = trials[i], trials[0]
		}
	}
	return trials
}

// flops counts the work of building a candidate and of solving with it, element
// being that of an element of K.
func (t *Trial) flops(n int, element float64, w Work) float64 {
	nf, m, s := float64(n), float64(t.Rank), float64(w.Columns)
	product := nf*nf/2*element + 2*nf*nf*s
	build, apply := 2*nf*m*m+m*m*m, 4*nf*m*s+2*m*m*s
	blocks := 2 * nf * m * s // two triangular solves
	switch t.Kind {
	case "pitc":
		build, apply = build+2*nf*m*m, apply+blocks
	case "blockjacobi":
		build, apply = nf*m*m/3, blocks
	case "svd":
		build += 4 * nf * nf * m
	}
	return build + float64(w.Solves)*t.Iterations*(product+apply)
}

// MaxRank returns the highest rank that Choose considers for n rows.
func MaxRank(n int) int { return slices.Max(ladder(n, maxLadder)) }

// ladder returns ranks √n, 2√n, … up to most·√n, within n/2 and the memory that
// an automatic rank may take.
func ladder(n, most int) []int {
	limit := max(1, min(n/2, maxAutoBytes/(8*n)))
	var ranks []int
	for f := 1; f <= most; f *= 2 {
		r := min(int(math.Ceil(float64(f)*math.Sqrt(float64(n)))), limit)
		ranks = append(ranks, max(1, r))
		if r == limit {
			break
		}
	}
	return ranks
}
