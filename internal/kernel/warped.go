package kernel

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Warped is a stationary leaf some of whose inputs x are bent: in their place are lo + (hi−lo)·w(u),
// u = (x−lo)/(hi−lo), w(u) = 1−(1−u^a)^b the distribution function of Kumaraswamy (Snoek et al. 2014, who have
// that of the beta distribution). With a = b = 1 it is the leaf itself. Outside of lo to hi an input is as at the nearer end.
type Warped struct {
	*Stationary
	Warps []Warp
}

// Warp is how one input is bent.
type Warp struct {
	Input  int     // from 0
	Lo, Hi float64 // standardised as the input is
	// A and B are parameters; where they have no name, they are these numbers.
	A, B           param.Param
	FixedA, FixedB float64
}

const warpedName = "warped"

// params returns a, then b, as far as they are not fixed.
func (w *Warp) params() (out []param.Param) {
	for _, p := range []param.Param{w.A, w.B} {
		if p.Symbol != "" {
			p.Inputs = []int{w.Input}
			out = append(out, p)
		}
	}
	return out
}

// Params returns those of the leaf that is warped, then those of the warps.
func (w *Warped) Params() []param.Param {
	out := w.Stationary.Params()
	for i := range w.Warps {
		out = append(out, w.Warps[i].params()...)
	}
	return out
}

// WarpsOf returns the places of the parameters of an input's warp.
func (w *Warped) WarpsOf(feature int) (out []int) {
	next := len(w.Stationary.Params())
	for i := range w.Warps {
		n := len(w.Warps[i].params())
		if w.Warps[i].Input == w.Inputs[feature] {
			for j := range n {
				out = append(out, next+j)
			}
		}
		next += n
	}
	return out
}

// String returns the leaf in the canonical text: the stationary one, then input, a, b, lo and hi of each warp, as
// warped(rbf(1-2:tau);2:a:=1:-1.7:1.7).
func (w *Warped) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s(%v", warpedName, w.Stationary)
	for _, p := range w.Warps {
		fmt.Fprintf(&b, ";%d:%s:%s:%s:%s", p.Input+1, fixedOr(p.A, p.FixedA), fixedOr(p.B, p.FixedB), number(p.Lo), number(p.Hi))
	}
	return b.String() + ")"
}

func (w *Warped) check(dim int) error {
	if err := w.Stationary.check(dim); err != nil {
		return err
	}
	if len(w.Warps) == 0 {
		return fmt.Errorf("%v has no warp", w)
	}
	for i, p := range w.Warps {
		width := p.Hi - p.Lo
		switch {
		case !slices.Contains(w.Inputs, p.Input) || slices.ContainsFunc(w.Warps[:i], func(q Warp) bool { return q.Input == p.Input }):
			return fmt.Errorf("%v warps input %d, which is not among its inputs, or is warped twice", w, p.Input+1)
		case !positive(width):
			return fmt.Errorf("%v warps from %g to %g: both must be finite, and the second the larger", w, p.Lo, p.Hi)
		case p.A.Symbol == "" && !positive(p.FixedA) || p.B.Symbol == "" && !positive(p.FixedB):
			return fmt.Errorf("%v warps by the exponents %g and %g: they must be positive", w, p.FixedA, p.FixedB)
		}
		for _, q := range p.params() {
			if q.Role != param.Exponent {
				return fmt.Errorf("the exponent %s has another role", q.Name())
			}
		}
	}
	return nil
}

// Outside returns how many points are outside of a warp's range, and the input of one of these. Points at an end are
// inside, however they were rounded.
func (w *Warp) Outside(in *Inputs) (count int, one float64) {
	slack := 1e-9 * (w.Hi - w.Lo)
	for i := range in.Len() {
		if x := in.Row(i)[w.Input]; x < w.Lo-slack || x > w.Hi+slack {
			count, one = count+1, x
		}
	}
	return count, one
}

func (w *Warped) at(theta []float64) LeafAt {
	n := len(w.Stationary.Params())
	at := &warpedAt{stationaryAt: w.Stationary.at(theta[:n]).(*stationaryAt), first: n, of: make([]*warpAt, len(w.Inputs))}
	theta = theta[n:]
	for i := range w.Warps {
		p := &warpAt{Warp: &w.Warps[i], a: w.Warps[i].FixedA, b: w.Warps[i].FixedB}
		for _, v := range []struct {
			of param.Param
			to *float64
		}{{p.A, &p.a}, {p.B, &p.b}} {
			if v.of.Symbol != "" {
				*v.to, theta = theta[0], theta[1:]
			}
		}
		at.warps = append(at.warps, p)
		at.of[slices.Index(w.Inputs, p.Input)] = p
	}
	return at
}

// warpAt is a warp at given parameters.
type warpAt struct {
	*Warp
	a, b float64
}

// place returns u, from 0 to 1.
func (w *warpAt) place(x float64) float64 { return max(0, min(1, (x-w.Lo)/(w.Hi-w.Lo))) }

// leastLog is about the least logarithm of a positive number: below it, products such as t·log t are zero.
const leastLog = -745

// logs returns log t, t = u^a, and log (1−t)^b.
func (w *warpAt) logs(u float64) (logT, logS float64) {
	logT = max(leastLog, w.a*math.Log(u))
	if logT < -math.Ln2 {
		return logT, max(leastLog, w.b*math.Log1p(-math.Exp(logT)))
	}
	return logT, max(leastLog, w.b*math.Log(-math.Expm1(logT)))
}

// value returns the warped input.
func (w *warpAt) value(x float64) float64 {
	_, logS := w.logs(w.place(x))
	return w.Lo - (w.Hi-w.Lo)*math.Expm1(logS)
}

// slopes returns the derivatives of value by log a and by log b, as far as these are not fixed. At both ends they are
// zero, as their limits are.
func (w *warpAt) slopes(x float64) (out []float64) {
	var by [2]float64
	if u := w.place(x); u > 0 && u < 1 {
		logT, logS := w.logs(u)
		if logT < 0 { // not rounded to it
			by[0] = -(w.Hi - w.Lo) * w.b * math.Exp(logS+logT) * (logT / math.Expm1(logT))
		}
		by[1] = -(w.Hi - w.Lo) * math.Exp(logS) * logS
	}
	for i, p := range []param.Param{w.A, w.B} {
		if p.Symbol != "" {
			out = append(out, by[i])
		}
	}
	return out
}

// slope returns the derivative of value by x. It is infinite at an end where an exponent is below one: nearer to the
// ends than 10⁻⁶ of the range it is the slope there. Outside of the range it is zero.
func (w *warpAt) slope(x float64) float64 {
	const nearest = 1e-6
	if x < w.Lo || x > w.Hi {
		return 0
	}
	u := max(nearest, min(1-nearest, w.place(x)))
	logT, logS := w.logs(u)
	if logT <= leastLog || logS <= leastLog || logT == 0 {
		return 0
	}
	return math.Exp(math.Log(w.a)+math.Log(w.b)-math.Log(u)+logT+logS) / -math.Expm1(logT)
}

// warpedAt is a warped leaf at given parameters: the stationary one at the warped points.
type warpedAt struct {
	*stationaryAt
	first int       // parameter of the warps
	warps []*warpAt // in their order
	of    []*warpAt // each feature, nil where it is not warped
}

// point returns a warped point.
func (w *warpedAt) point(x []float64) []float64 {
	y := slices.Clone(x)
	for _, p := range w.warps {
		y[p.Input] = p.value(x[p.Input])
	}
	return y
}

func (w *warpedAt) Feature(feature int, x []float64, typical *Inputs) float64 {
	p := w.of[feature]
	if p == nil {
		return w.stationaryAt.Feature(feature, x, typical)
	}
	return p.value(x[p.Input]) - p.value(typical.Centre(p.Input))
}

// Slope is with respect to the logarithm of an exponent. That of the typical point is not in it: it is the same for all.
func (w *warpedAt) Slope(feature, param int, x []float64, _ *Inputs) float64 {
	next := w.first
	for _, p := range w.warps {
		slopes := p.slopes(x[p.Input])
		if p == w.of[feature] {
			return slopes[param-next]
		}
		next += len(slopes)
	}
	panic("kernel: a feature that is not warped")
}

func (w *warpedAt) value(x, y []float64) float64 { return w.stationaryAt.value(w.point(x), w.point(y)) }

func (w *warpedAt) addGradient(g []float64, at []int, weight float64, x, y []float64) {
	wx, wy := w.point(x), w.point(y)
	w.stationaryAt.addGradient(g, at[:w.first], weight, wx, wy)
	by := make([]float64, len(x)) // the warped inputs of x; by those of y it is the opposite
	w.stationaryAt.addSlopes(by, weight, wx, wy)
	next := w.first
	for _, p := range w.warps {
		other := p.slopes(y[p.Input])
		for j, d := range p.slopes(x[p.Input]) {
			g[at[next+j]] += by[p.Input] * (d - other[j])
		}
		next += len(other)
	}
}

// spectral is false: the covariance is no function of the difference of two points.
func (*warpedAt) spectral() bool { return false }

func (w *warpedAt) addSlopes(dst []float64, weight float64, x, y []float64) {
	by := make([]float64, len(dst))
	w.stationaryAt.addSlopes(by, weight, w.point(x), w.point(y))
	w.chain(dst, by, x, 1)
}

func (w *warpedAt) addSlopeVariances(dst []float64, weight float64, x []float64) {
	by := make([]float64, len(dst))
	w.stationaryAt.addSlopeVariances(by, weight, x)
	w.chain(dst, by, x, 2)
}

// chain adds derivatives by warped inputs as those by the inputs, each of so many points.
func (w *warpedAt) chain(dst, by, x []float64, points int) {
	for _, p := range w.warps {
		for range points {
			by[p.Input] *= p.slope(x[p.Input])
		}
	}
	for k, d := range by {
		dst[k] += d
	}
}

// warped reads the rest of a leaf such as warped(rbf(1-2:tau);2:a:=1:-1.7:1.7).
func (p *parser) warped() (Leaf, error) {
	if strings.HasPrefix(p.rest, warpedName+"(") {
		return nil, errors.New("a warped leaf in another")
	}
	inner, err := p.leaf()
	if err != nil {
		return nil, err
	}
	s, ok := inner.(*Stationary)
	if !ok {
		return nil, fmt.Errorf("%v cannot be warped", inner)
	}
	w := &Warped{Stationary: s}
	for p.take(";") {
		one, err := p.warp()
		if err != nil {
			return nil, err
		}
		w.Warps = append(w.Warps, one)
	}
	if !p.take(")") {
		return nil, errors.New("want ; or )")
	}
	return w, nil
}

// warp reads input, a, b, lo and hi.
func (p *parser) warp() (w Warp, err error) {
	input, err := p.input()
	if err != nil {
		return w, err
	}
	w.Input = input - 1
	for _, next := range []func() error{
		func() (err error) { w.A, w.FixedA, err = p.fixedOr(param.Exponent); return err },
		func() (err error) { w.B, w.FixedB, err = p.fixedOr(param.Exponent); return err },
		func() (err error) { w.Lo, err = p.number(); return err },
		func() (err error) { w.Hi, err = p.number(); return err },
	} {
		if !p.take(":") {
			return w, errors.New("want a colon")
		}
		if err := next(); err != nil {
			return w, err
		}
	}
	return w, nil
}
