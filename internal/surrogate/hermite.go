package surrogate

import "math"

// basis are the products of normalised Hermite polynomials of several coordinates up to a
// total degree, without the constant: orthonormal under the standard normal distribution,
// so that they are well conditioned on whitened draws.
type basis struct {
	dim, degree int
	terms       [][]power
}

// power is a polynomial of one coordinate.
type power struct{ coordinate, degree int }

func newBasis(dim, degree int) *basis {
	b := &basis{dim: dim, degree: degree}
	var add func(term []power, from, left int)
	add = func(term []power, from, left int) {
		if len(term) > 0 {
			b.terms = append(b.terms, append([]power(nil), term...))
		}
		for c := from; c < dim; c++ {
			for d := 1; d <= left; d++ {
				add(append(term, power{c, d}), c+1, left-d)
			}
		}
	}
	add(nil, 0, degree)
	return b
}

// total returns the degree of a term.
func total(term []power) int {
	sum := 0
	for _, f := range term {
		sum += f.degree
	}
	return sum
}

// table holds He_d(z_c)/√d! and its derivative for each coordinate and degree.
type table struct{ value, slope [][]float64 }

func (b *basis) table(z []float64) table {
	t := table{make([][]float64, b.dim), make([][]float64, b.dim)}
	for c, x := range z {
		v, s := make([]float64, b.degree+1), make([]float64, b.degree+1)
		v[0] = 1
		for d := 1; d <= b.degree; d++ {
			// He_d = x·He_{d−1} − (d−1)·He_{d−2}, He_d' = d·He_{d−1}, each over √d!.
			v[d] = x * v[d-1]
			if d > 1 {
				v[d] -= math.Sqrt(float64(d-1)) * v[d-2]
			}
			v[d] /= math.Sqrt(float64(d))
			s[d] = math.Sqrt(float64(d)) * v[d-1]
		}
		t.value[c], t.slope[c] = v, s
	}
	return t
}

// values sets dst to the terms at z.
func (b *basis) values(dst, z []float64) {
	t := b.table(z)
	for i, term := range b.terms {
		v := 1.0
		for _, f := range term {
			v *= t.value[f.coordinate][f.degree]
		}
		dst[i] = v
	}
}

// slopes calls use(i, c, s) for every term i and coordinate c that it depends on: s is its
// derivative.
func (b *basis) slopes(z []float64, use func(i, c int, s float64)) {
	t := b.table(z)
	for i, term := range b.terms {
		for j, f := range term {
			s := t.slope[f.coordinate][f.degree]
			for l, o := range term {
				if l != j {
					s *= t.value[o.coordinate][o.degree]
				}
			}
			use(i, f.coordinate, s)
		}
	}
}
