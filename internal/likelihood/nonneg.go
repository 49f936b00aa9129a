package likelihood

import (
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// nonnegative returns the x ≥ 0 for which ‖Ax − b‖ is least, by the active set of Lawson and Hanson (1974, chapter 23): of
// the variables that are 0 the one along which the residual falls most is let go, until there is none, or it is one that
// those before it already span.
func nonnegative(a *mat.Dense, b *mat.VecDense) []float64 {
	const (
		least = 1e-7 // slope of the residual that is followed, columns being of length 1
		most  = 10   // times as many solves as variables
	)
	_, n := a.Dims()
	x, free := make([]float64, n), make([]bool, n)
	for solves := 0; solves < most*n; {
		next := steepest(a, b, x, free, least)
		if next < 0 {
			return x
		}
		free[next] = true
		for inside := false; !inside; solves++ {
			s, ok := restricted(a, b, free)
			if !ok {
				return x
			}
			inside = towards(x, s, free)
		}
	}
	return x
}

// steepest returns the variable at 0 along which the residual falls most, −1 if it falls along none.
func steepest(a *mat.Dense, b *mat.VecDense, x []float64, free []bool, least float64) int {
	var r, g mat.VecDense
	r.MulVec(a, mat.NewVecDense(len(x), x))
	r.SubVec(b, &r)
	g.MulVec(a.T(), &r)
	best, at := least, -1
	for k, is := range free {
		if v := g.AtVec(k); !is && v > best {
			best, at = v, k
		}
	}
	return at
}

// restricted returns the least squares solution over the free variables, the others being 0; false where there is none.
func restricted(a *mat.Dense, b *mat.VecDense, free []bool) ([]float64, bool) {
	rows, _ := a.Dims()
	var set []int
	for k, is := range free {
		if is {
			set = append(set, k)
		}
	}
	if len(set) == 0 {
		return nil, false
	}
	part := mat.NewDense(rows, len(set), nil)
	for j, k := range set {
		part.SetCol(j, mat.Col(nil, k, a))
	}
	var s mat.VecDense
	if err := s.SolveVec(part, b); err != nil {
		return nil, false
	}
	out := make([]float64, len(free))
	for j, k := range set {
		out[k] = s.AtVec(j)
	}
	return out, true
}

// towards moves x to s, or as far as all of it is positive: what comes to 0 there is no longer free. It reports whether x
// is s.
func towards(x, s []float64, free []bool) bool {
	share, stop := 1.0, -1
	for k, is := range free {
		if is && s[k] <= 0 {
			if part := x[k] / (x[k] - s[k]); stop < 0 || part < share {
				share, stop = part, k
			}
		}
	}
	step := make([]float64, len(x))
	floats.SubTo(step, s, x)
	floats.AddScaled(x, share, step)
	if stop < 0 {
		return true
	}
	for k, is := range free {
		if is && (k == stop || x[k] <= 0) {
			x[k], free[k] = 0, false
		}
	}
	return false
}
