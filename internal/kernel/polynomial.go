package kernel

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Polynomial is the leaf (c + Σ_k x_k·y_k)^p over some inputs, of functions that are polynomials of degree p; with c = 0
// all of their monomials have that degree.
type Polynomial struct {
	plain
	Inputs []int // from 0
	Degree int
	// Offset is c, a parameter; where it has no name, it is this number.
	Offset      param.Param
	FixedOffset float64
}

const polynomialName = "polynomial"

// MaxDegree bounds the degree of a polynomial.
const MaxDegree = 10

// NumFeatures returns the number of monomials: (d+p choose p), or those of degree p alone.
func (p *Polynomial) NumFeatures() int {
	d := len(p.Inputs)
	if p.homogeneous() {
		d--
	}
	n := 1.0
	for i := 1; i <= p.Degree; i++ {
		n = n * float64(d+i) / float64(i)
	}
	return int(math.Min(math.Round(n), MaxRank+1))
}

// homogeneous reports whether all monomials have one degree.
func (p *Polynomial) homogeneous() bool { return p.Offset.Symbol == "" && p.FixedOffset == 0 }

// Params returns the offset, unless it is fixed.
func (p *Polynomial) Params() []param.Param {
	if p.Offset.Symbol == "" {
		return nil
	}
	return []param.Param{p.Offset}
}

// WarpsOf returns the place of the offset.
func (p *Polynomial) WarpsOf(int) []int { return []int{0}[:len(p.Params())] }

// String returns the leaf in the canonical text, inputs, degree and offset: polynomial(1,3:2:1), or polynomial(1,3:2:c).
func (p *Polynomial) String() string {
	var inputs []string
	for _, k := range p.Inputs {
		inputs = append(inputs, fmt.Sprint(k+1))
	}
	return fmt.Sprintf("%s(%s:%d:%s)", polynomialName, strings.Join(inputs, ","), p.Degree, strings.TrimPrefix(fixedOr(p.Offset, p.FixedOffset), "="))
}

func (p *Polynomial) check(dim int) error {
	switch {
	case p.Degree < 1 || p.Degree > MaxDegree:
		return fmt.Errorf("%v has the degree %d: it must be from 1 to %d", p, p.Degree, MaxDegree)
	case !(p.FixedOffset >= 0) || math.IsInf(p.FixedOffset, 1):
		return fmt.Errorf("%v has the offset %g: it must not be negative", p, p.FixedOffset)
	case p.Offset.Symbol != "" && p.Offset.Role != param.Offset:
		return fmt.Errorf("a parameter of %v has another role", p)
	}
	if err := (&Linear{Inputs: p.Inputs, Centres: make([]float64, len(p.Inputs))}).check(dim); err != nil {
		return fmt.Errorf("%v: %w", p, err)
	}
	if p.NumFeatures() > MaxRank {
		return fmt.Errorf("%v has more than %d monomials", p, MaxRank)
	}
	return nil
}

func (p *Polynomial) at(theta []float64) LeafAt {
	at := &polynomialAt{Polynomial: p, offset: p.FixedOffset}
	if len(theta) > 0 {
		at.offset = theta[0]
	}
	at.list(make([]int, 0, len(p.Inputs)), p.Degree)
	return at
}

// polynomialAt is the leaf with its monomials: their exponents, and the roots of their multinomial coefficients.
type polynomialAt struct {
	*Polynomial
	offset    float64
	exponents [][]int
	root      []float64
	power     []float64 // of the offset
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
	if left > 0 && p.homogeneous() {
		return
	}
	// p!/(Π e! · left!) · c^left
	c := math.Gamma(float64(p.Degree)+1) / math.Gamma(float64(left)+1) * math.Pow(p.offset, float64(left))
	for _, e := range exponents {
		c /= math.Gamma(float64(e) + 1)
	}
	p.exponents = append(p.exponents, append([]int(nil), exponents...))
	p.root, p.power = append(p.root, math.Sqrt(c)), append(p.power, float64(left))
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

// Slope is with respect to the logarithm of the offset.
func (p *polynomialAt) Slope(feature, _ int, x []float64, _ *Inputs) float64 {
	return p.power[feature] / 2 * p.Feature(feature, x, nil)
}

func (p *polynomialAt) dot(x, y []float64) float64 {
	u := p.offset
	for _, k := range p.Inputs {
		u += x[k] * y[k]
	}
	return u
}

func (p *polynomialAt) value(x, y []float64) float64 {
	return math.Pow(p.dot(x, y), float64(p.Degree))
}

func (p *polynomialAt) addGradient(g []float64, at []int, w float64, x, y []float64) {
	if len(at) > 0 {
		n := float64(p.Degree)
		g[at[0]] += w * n * p.offset * math.Pow(p.dot(x, y), n-1)
	}
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
	if strings.IndexAny(p.rest, "+-.0123456789") == 0 {
		l.FixedOffset, err = p.number()
	} else {
		l.Offset, err = p.param(param.Offset)
	}
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, errors.New("want )")
	}
	return l, nil
}
