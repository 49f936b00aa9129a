package kernel

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/param"
)

// Sigmoid is the leaf s(x)·s(y) with s(x) = 1/(1+exp(−(x−c)/w)) of one input: it lets what it is multiplied by
// begin at c, or, where it falls, end there. Two of them, of which one falls, make a change point (Duvenaud
// 2014, section 2.4.4).
type Sigmoid struct {
	plain
	Input int // from 0
	// Mean and Unit are where the input is 0, and the difference of the input where it is 1, in the
	// unit that place and width are told in: its mean and its standard deviation.
	Mean, Unit float64
	// Place and Width are parameters; where they have no name, they are these numbers.
	Place, Width           param.Param
	FixedPlace, FixedWidth float64
	Falling                bool
}

const (
	sigmoidName = "sigmoid"
	fallingName = "falling"
)

// NumFeatures returns 1.
func (s *Sigmoid) NumFeatures() int { return 1 }

// Params returns the place, then the width, as far as they are not fixed.
func (s *Sigmoid) Params() (out []param.Param) {
	if p := s.Place; p.Symbol != "" {
		p.Inputs, p.Transform = []int{s.Input}, param.Real(s.Mean, s.Unit)
		out = append(out, p)
	}
	if p := s.Width; p.Symbol != "" {
		p.Inputs = []int{s.Input}
		out = append(out, p)
	}
	return out
}

// WarpsOf returns the places of all parameters.
func (s *Sigmoid) WarpsOf(int) []int { return []int{0, 1}[:len(s.Params())] }

// String returns the leaf in the canonical text: input, place, width, mean and unit, as sigmoid(1:c:=2:13.1:2.5:falling);
// of two numbers in the unit of the input itself these alone, the width negative where it falls, as sigmoid(1:0.5:-2).
func (s *Sigmoid) String() string {
	if len(s.Params()) == 0 && s.Mean == 0 && s.Unit == 1 {
		width := s.FixedWidth
		if s.Falling {
			width = -width
		}
		return fmt.Sprintf("%s(%d:%s:%s)", sigmoidName, s.Input+1, number(s.FixedPlace), number(width))
	}
	falling := ""
	if s.Falling {
		falling = ":" + fallingName
	}
	return fmt.Sprintf("%s(%d:%s:%s:%s:%s%s)", sigmoidName, s.Input+1, fixedOr(s.Place, s.FixedPlace), fixedOr(s.Width, s.FixedWidth), number(s.Mean), number(s.Unit), falling)
}

// number returns a number that no parameter stands for, in the canonical text.
func number(x float64) string { return strings.TrimPrefix(constant(x), "=") }

func (s *Sigmoid) check(dim int) error {
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	switch {
	case s.Input < 0 || s.Input >= dim:
		return fmt.Errorf("%v is over input %d of %d", s, s.Input+1, dim)
	case !positive(s.Unit) || !finite(s.Mean):
		return fmt.Errorf("%v has the mean %g and the unit %g: both must be finite, and the unit positive", s, s.Mean, s.Unit)
	case s.Place.Symbol == "" && !finite(s.FixedPlace) || s.Width.Symbol == "" && !positive(s.FixedWidth):
		return fmt.Errorf("%v is at %g and %g wide: both must be finite, and the width positive", s, s.FixedPlace, s.FixedWidth)
	case s.Place.Symbol != "" && s.Place.Role != param.Place || s.Width.Symbol != "" && s.Width.Role != param.Width:
		return fmt.Errorf("a parameter of %v has another role", s)
	}
	return nil
}

func (s *Sigmoid) at(theta []float64) LeafAt {
	at := &sigmoidAt{Sigmoid: s, place: s.FixedPlace, width: s.FixedWidth}
	if s.Place.Symbol != "" {
		at.place, theta = theta[0], theta[1:]
	}
	if s.Width.Symbol != "" {
		at.width = theta[0]
	}
	return at
}

// sigmoidAt is a sigmoid at given parameters.
type sigmoidAt struct {
	*Sigmoid
	place, width float64
}

func (*sigmoidAt) Shape() float64 { return 0 }

// steps returns how many widths x is beyond the place, in the direction in which the sigmoid rises.
func (s *sigmoidAt) steps(x []float64) float64 {
	const most = 1000 // beyond which e^t has no meaning
	t := max(-most, min(most, (s.Mean+s.Unit*x[s.Input]-s.place)/s.width))
	if s.Falling {
		return -t
	}
	return t
}

// Feature returns s(x).
func (s *sigmoidAt) Feature(_ int, x []float64, _ *Inputs) float64 {
	return 1 / (1 + math.Exp(-s.steps(x)))
}

// Slope is with respect to the place, or to the logarithm of the width.
func (s *sigmoidAt) Slope(_, param int, x []float64, _ *Inputs) float64 {
	_, slopes := s.slopes(x)
	return slopes[param]
}

// slopes returns s(x) and its derivatives with respect to each of the parameters.
func (s *sigmoidAt) slopes(x []float64) (v float64, slopes [2]float64) {
	t := s.steps(x)
	v = 1 / (1 + math.Exp(-t))
	d := v * (1 - v)
	place, width := -d/s.width, -t*d
	if s.Falling {
		place = -place
	}
	if s.Place.Symbol == "" {
		return v, [2]float64{width}
	}
	return v, [2]float64{place, width}
}

// slope returns ds/dx.
func (s *sigmoidAt) slope(x []float64) float64 {
	d := s.Unit / s.width / (2 + 2*math.Cosh(s.steps(x)))
	if s.Falling {
		return -d
	}
	return d
}

func (s *sigmoidAt) value(x, y []float64) float64 { return s.Feature(0, x, nil) * s.Feature(0, y, nil) }

func (s *sigmoidAt) addGradient(g []float64, at []int, w float64, x, y []float64) {
	if len(at) == 0 {
		return
	}
	vx, dx := s.slopes(x)
	vy, dy := s.slopes(y)
	for i, to := range at {
		g[to] += w * (dx[i]*vy + vx*dy[i])
	}
}

func (s *sigmoidAt) addSlopes(dst []float64, w float64, x, y []float64) {
	dst[s.Input] += w * s.slope(x) * s.Feature(0, y, nil)
}

func (s *sigmoidAt) addSlopeVariances(dst []float64, w float64, x []float64) {
	d := s.slope(x)
	dst[s.Input] += w * d * d
}

// sigmoid reads the rest of a leaf such as sigmoid(1:c:=2:13.1:2.5:falling) or sigmoid(1:0.5:-2).
func (p *parser) sigmoid() (Leaf, error) {
	k, err := p.input()
	if err != nil {
		return nil, err
	}
	s := &Sigmoid{Input: k - 1, Unit: 1}
	parts := []func() error{
		func() (err error) { s.Place, s.FixedPlace, err = p.fixedOr(param.Place); return err },
		func() (err error) { s.Width, s.FixedWidth, err = p.fixedOr(param.Width); return err },
		func() (err error) { s.Mean, err = p.number(); return err },
		func() (err error) { s.Unit, err = p.number(); return err },
	}
	if strings.HasPrefix(p.rest, ":") && strings.IndexAny(p.rest, "+-.0123456789") == 1 {
		parts = []func() error{
			func() (err error) { s.FixedPlace, err = p.number(); return err },
			func() (err error) { s.FixedWidth, err = p.number(); return err },
		}
	}
	for _, next := range parts {
		if !p.take(":") {
			return nil, errors.New("want a colon")
		}
		if err := next(); err != nil {
			return nil, err
		}
	}
	if len(parts) == 2 {
		s.Falling, s.FixedWidth = s.FixedWidth < 0, math.Abs(s.FixedWidth)
	} else {
		s.Falling = p.take(":" + fallingName)
	}
	if !p.take(")") {
		return nil, errors.New("want )")
	}
	return s, nil
}
