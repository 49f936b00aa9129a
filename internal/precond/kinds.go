package precond

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// kinds are the preconditioners by name: functions that return the diagonal D
// and at most rank columns of L for K(θ) as the operator stands.
var kinds = map[string]func(op *cmvp.Operator, rank int, key random.Key) (d []float64, cols [][]float64, err error){
	"nystrom":    nystrom,
	"cholesky":   greedyCholesky,
	"rpcholesky": randomCholesky,
}

// Kinds returns the names of the kinds.
func Kinds() []string {
	var names []string
	for k := range kinds {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// Build builds a preconditioner of the given kind and rank for K(θ) as the
// operator stands. Random choices come from the key, so that the same
// arguments give the same bits.
func Build(kind string, op *cmvp.Operator, rank int, key random.Key) (*LowRank, error) {
	build, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("unknown preconditioner %q: use one of %s", kind, strings.Join(Kinds(), ", "))
	}
	d, cols, err := build(op, min(rank, op.Len()), key)
	if err != nil {
		return nil, fmt.Errorf("%s preconditioner: %w", kind, err)
	}
	p, err := newLowRank(kind, d, cols, op.Budget())
	if err != nil {
		return nil, fmt.Errorf("%s preconditioner: %w", kind, err)
	}
	return p, nil
}

// maxAutoBytes bounds the memory of a preconditioner of automatic rank.
const maxAutoBytes = 1 << 30

// AutoRank returns the rank for n rows when none is asked for: 4√n, as the
// authors of Cutajar et al. (2016) used, within n/2 and 1 GiB.
func AutoRank(n int) int {
	r := 1
	for r*r < 16*n {
		r++
	}
	return max(1, min(r, n/2, maxAutoBytes/(8*n)))
}
