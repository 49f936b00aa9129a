package precond

import (
	"context"
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
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
	// elementFlops is what an element of K costs beyond 3 for each input.
	elementFlops = 20
)

// Choose finds the cheapest rank of a kind built at the θ of op for solves with
// k, which is K at a θ near by, wherever it is computed, or, if the kind is "auto", the cheapest kind too: of RPCholesky, which is quick to
// build, the truncated SVD, which needs the fewest iterations for its rank where
// length-scales are long, and PITC, which wins where they are short. All
// candidates solve one system together to a residual of trialTolerance, sharing
// products. They are returned with the chosen one first.
//
// k should be as far from op as solves will be: a P that is K itself at θ needs
// no iterations there, and not fewer than a lesser one elsewhere.
func Choose(ctx context.Context, kind string, op *cmvp.Operator, k solve.Operator, w Work, key random.Key) ([]Trial, error) {
	var pre []solve.Preconditioner
	var trials []Trial
	add := func(kind string, ranks []int) error {
		if Nested(kind) {
			p, err := Build(kind, op, slices.Max(ranks), key)
			if err != nil {
				return err
			}
			for _, r := range ranks {
				if r >= p.Rank() {
					pre, trials = append(pre, p), append(trials, Trial{Kind: kind, Rank: p.Rank()})
					break
				}
				pre, trials = append(pre, p.First(r)), append(trials, Trial{Kind: kind, Rank: r})
			}
			return nil
		}
		for _, r := range ranks {
			p, err := Build(kind, op, r, key)
			if err != nil {
				return err
			}
			pre, trials = append(pre, p), append(trials, Trial{Kind: kind, Rank: r})
		}
		return nil
	}
	n := op.Len()
	var err error
	switch {
	case kind == "auto":
		for _, c := range []struct {
			kind string
			most int
		}{{"rpcholesky", maxLadder}, {"svd", maxLadder}, {"pitc", 2}} {
			if err = add(c.kind, ladder(n, c.most)); err != nil {
				return nil, err
			}
		}
	case Nested(kind):
		err = add(kind, ladder(n, maxLadder))
	default:
		err = add(kind, ladder(n, 4))
	}
	if err != nil {
		return nil, err
	}

	b := make([]float64, n)
	random.Rademacher(key.Stream(random.Calibration, 0), b)
	x := columns(n, len(pre))
	rep, err := solve.New(k, solve.Options{Tolerance: trialTolerance, MaxIter: trialIterations, PerColumn: pre, Budget: op.Budget()}).
		Solve(ctx, x, slices.Repeat([][]float64{b}, len(pre)))
	if err != nil {
		return nil, err
	}
	for i := range trials {
		t := &trials[i]
		rate := -math.Log(min(rep.Residuals[i], 0.999)) / float64(max(1, rep.Iterations[i]))
		t.Iterations = math.Ceil(-math.Log(w.Tolerance) / rate)
		t.Flops = t.flops(n, op.Inputs().Dim(), w)
	}
	best := slices.MinFunc(trials, func(a, b Trial) int { return compare(a.Flops, b.Flops) })
	slices.SortStableFunc(trials, func(a, b Trial) int { return compare(a.Flops, b.Flops) })
	for i, t := range trials {
		if t.Kind == best.Kind && t.Rank > trials[0].Rank && t.Flops <= trialSlack*best.Flops {
			trials[0], trials[i] = trials[i], trials[0]
		}
	}
	return trials, nil
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// flops counts the work of building a candidate and of solving with it.
func (t *Trial) flops(n, d int, w Work) float64 {
	nf, m, s := float64(n), float64(t.Rank), float64(w.Columns)
	product := nf*nf/2*(elementFlops+3*float64(d)) + 2*nf*nf*s
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
