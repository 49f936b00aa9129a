package precond

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// kinds are the preconditioners with a factor, by name: functions that return
// B and at most rank columns of L for K(θ) as it stands. A kind with blocks makes
// them of rank rows. One that cannot serve a covariance returns an error that says
// what it lacks.
var kinds = map[string]func(ctx context.Context, k Covariance, rank int, key random.Key) (parts, error){
	"nystrom":     nystrom,
	"fitc":        fitc,
	"pitc":        pitc,
	"cholesky":    greedyCholesky,
	"rpcholesky":  randomCholesky,
	"svd":         truncatedSVD,
	"fourier":     fourier,
	"blockjacobi": blockJacobi,
}

// Nested reports whether a kind's columns of L do not depend on how many there
// are, so that one factorisation holds those of every lower rank. (Those of svd
// do a little: a larger sketch finds the same eigenvectors more accurately.)
func Nested(kind string) bool {
	return kind == "nystrom" || kind == "cholesky" || kind == "rpcholesky" || kind == "svd"
}

// Pivoted reports whether a kind's columns of L are those of a pivoted Cholesky factorisation whose B is the noise: any rows of it can be
// computed by its recipe, so that a group may build and keep it.
func Pivoted(kind string) bool { return kind == "rpcholesky" || kind == "nystrom" }

// Kinds returns the names of the kinds that Build takes.
func Kinds() []string { return names(kinds) }

func names[T any](m map[string]T) []string {
	var names []string
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// Build builds a preconditioner of the given kind and rank for K(θ) as it stands. The columns of a part of K_f that
// is of low rank itself come beside those.
// Random choices come from the key, so that the same arguments give the same bits.
// It ends within a fraction of a second after ctx is done, with its error.
func Build(ctx context.Context, kind string, k Covariance, rank int, key random.Key) (*LowRank, error) {
	build, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("unknown preconditioner %q: use one of %s", kind, strings.Join(Kinds(), ", "))
	}
	rest, exact := withoutFeatures(k)
	pt := parts{base: newDiagonal(k.Noise(), k.Budget())}
	if rest != nil {
		var err error
		if pt, err = build(ctx, rest, min(rank, k.Len()), key); err != nil {
			return nil, fmt.Errorf("%s preconditioner: %w", kind, err)
		}
	}
	p, err := newLowRank(ctx, kind, pt, exact, k)
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
	return max(1, min(r, n/2, MaxOwnRank(n)))
}

// MaxOwnRank returns the highest rank for n rows of which a preconditioner's factor takes no more than 1 GiB.
func MaxOwnRank(n int) int { return max(1, maxAutoBytes/(8*n)) }
