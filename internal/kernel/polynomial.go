package kernel

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Polynomial is the leaf (c + Σ_k x_k·y_k)^p over some inputs, of functions that are polynomials of degree p; with c = 0
// all of their monomials have that degree. It has no parameters.
type Polynomial struct {
	plain
	Inputs []int // from 0
	Degree int
	Offset float64 // c
}

const polynomialName = "polynomial"

// MaxDegree bounds the degree of a polynomial.
const MaxDegree = 10

// NumFeatures returns the number of monomials: (d+p choose p), or those of degree p alone.
func (p *Polynomial) NumFeatures() int {
	d := len(p.Inputs)
	if p.Offset == 0 {
		d--
	}
	n := 1.0
	for i := 1; i <= p.Degree; i++ {
		n = n * float64(d+i) / float64(i)
	}
	return int(math.Min(math.Round(n), MaxRank+1))
}

// String returns the leaf in the canonical text, inputs, degree and offset: polynomial(1,3:2:1).
func (p *Polynomial) String() string {
	var inputs []string
	for _, k := range p.Inputs {
		inputs = append(inputs, fmt.Sprint(k+1))
	}
	return fmt.Sprintf("%s(%s:%d:%s)", polynomialName, strings.Join(inputs, ","), p.Degree, strings.TrimPrefix(constant(p.Offset), "="))
}

func (p *Polynomial) check(dim int) error {
	switch {
	case p.Degree < 1 || p.Degree > MaxDegree:
		return fmt.Errorf("%v has the degree %d: it must be from 1 to %d", p, p.Degree, MaxDegree)
	case !(p.Offset >= 0) || math.IsInf(p.Offset, 1):
		return fmt.Errorf("%v has the offset %g: it must not be negative", p, p.Offset)
	}
	if err := (&Linear{Inputs: p.Inputs, Centres: make([]float64, len(p.Inputs))}).check(dim); err != nil {
		return fmt.Errorf("%v: %w", p, err)
	}
	if p.NumFeatures() > MaxRank {
		return fmt.Errorf("%v has more than %d monomials", p, MaxRank)
	}
	return nil
}

func (p *Polynomial) at([]float64) LeafAt {
	at := &polynomialAt{Polynomial: p}
	at.list(make([]int, 0, len(p.Inputs)), p.Degree)
	return at
}

// polynomialAt is the leaf with its monomials: their exponents, and the roots of their multinomial coefficients.
type polynomialAt struct {
	*Polynomial
	exponents [][]int
	root      []float64
}

func (*polynomialAt) Shape() float64 { return 0 }

// list adds the monomials that begin with some exponents, left being what the others have together at most.
func (p *polynomialAt) list(exponents []int, left int) {
	if len(exponents) < len(p.Inputs) {
		for e := 0; e <= left; e++ {
			p.list(append(exponents, e), left-e)
		}
		return
	}
	if left > 0 && p.Offset == 0 {
		return
	}
	// p!/(Π e! · left!) · c^left
	c := math.Gamma(float64(p.Degree)+1) / math.Gamma(float64(left)+1) * math.Pow(p.Offset, float64(left))
	for _, e := range exponents {
		c /= math.Gamma(float64(e) + 1)
	}
	p.exponents = append(p.exponents, append([]int(nil), exponents...))
	p.root = append(p.root, math.Sqrt(c))
}

// Feature returns a monomial.
func (p *polynomialAt) Feature(feature int, x []float64, _ *Inputs) float64 {
	v := p.root[feature]
	for i, e := range p.exponents[feature] {
		for range e {
			v *= x[p.Inputs[i]]
		}
	}
	return v
}

func (p *polynomialAt) dot(x, y []float64) float64 {
	u := p.Offset
	for _, k := range p.Inputs {
		u += x[k] * y[k]
	}
	return u
}

func (p *polynomialAt) value(x, y []float64) float64 {
	return math.Pow(p.dot(x, y), float64(p.Degree))
}

func (p *polynomialAt) addSlopes(dst []float64, w float64, x, y []float64) {
	w *= float64(p.Degree) * math.Pow(p.dot(x, y), float64(p.Degree-1))
	for _, k := range p.Inputs {
		dst[k] += w * y[k]
	}
}

// addSlopeVariances adds ∂²u^p/∂x_k∂y_k = p·u^(p−1) + p(p−1)·u^(p−2)·x_k².
func (p *polynomialAt) addSlopeVariances(dst []float64, w float64, x []float64) {
	u, n := p.dot(x, x), float64(p.Degree)
	for _, k := range p.Inputs {
		dst[k] += w * n * math.Pow(u, n-1)
		if p.Degree > 1 {
			dst[k] += w * n * (n - 1) * math.Pow(u, n-2) * x[k] * x[k]
		}
	}
}

// polynomial reads the rest of a leaf such as polynomial(1,3:2:1).
func (p *parser) polynomial() (Leaf, error) {
	l := &Polynomial{}
	for {
		k, err := p.input()
		if err != nil {
			return nil, err
		}
		l.Inputs = append(l.Inputs, k-1)
		if p.take(":") {
			break
		}
		if !p.take(",") {
			return nil, errors.New("want a comma or a colon")
		}
	}
	degree, err := p.number()
	if err != nil {
		return nil, err
	}
	if l.Degree = int(degree); float64(l.Degree) != degree {
		return nil, errors.New("want a whole degree")
	}
	if !p.take(":") {
		return nil, errors.New("want a colon")
	}
	if l.Offset, err = p.number(); err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, errors.New("want )")
	}
	return l, nil
}
