package kernel

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Sigmoid is the leaf s(x)·s(y) with s(x) = 1/(1+exp(−(x−c)/w)) of one input: it lets what it is multiplied by
// begin at c, or, where w is negative, end there. Two of them with w and −w make a change point (Duvenaud
// 2014, section 2.4.4). It has no parameters.
type Sigmoid struct {
	plain
	Input     int // from 0
	At, Width float64
}

const sigmoidName = "sigmoid"

// NumFeatures returns 1.
func (s *Sigmoid) NumFeatures() int { return 1 }

// String returns the leaf in the canonical text, input, place and width: sigmoid(1:0.5:-2).
func (s *Sigmoid) String() string {
	return fmt.Sprintf("%s(%d:%v:%v)", sigmoidName, s.Input+1, strings.TrimPrefix(constant(s.At), "="), strings.TrimPrefix(constant(s.Width), "="))
}

func (s *Sigmoid) check(dim int) error {
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	switch {
	case s.Input < 0 || s.Input >= dim:
		return fmt.Errorf("%v is over input %d of %d", s, s.Input+1, dim)
	case !finite(s.At) || !finite(s.Width) || s.Width == 0:
		return fmt.Errorf("%v is at %g and %g wide: both must be finite, and the width not 0", s, s.At, s.Width)
	}
	return nil
}

func (s *Sigmoid) at([]float64) LeafAt { return sigmoidAt{s} }

// sigmoidAt is the leaf, which has no parameters.
type sigmoidAt struct{ *Sigmoid }

func (sigmoidAt) Shape() float64 { return 0 }

// Feature returns s(x).
func (s *Sigmoid) Feature(_ int, x []float64, _ *Inputs) float64 {
	return 1 / (1 + math.Exp(-(x[s.Input]-s.At)/s.Width))
}

// slope returns ds/dx.
func (s *Sigmoid) slope(x []float64) float64 {
	v := s.Feature(0, x, nil)
	return v * (1 - v) / s.Width
}

func (s *Sigmoid) value(x, y []float64) float64 { return s.Feature(0, x, nil) * s.Feature(0, y, nil) }

func (s *Sigmoid) addSlopes(dst []float64, w float64, x, y []float64) {
	dst[s.Input] += w * s.slope(x) * s.Feature(0, y, nil)
}

func (s *Sigmoid) addSlopeVariances(dst []float64, w float64, x []float64) {
	d := s.slope(x)
	dst[s.Input] += w * d * d
}

// sigmoid reads the rest of a leaf such as sigmoid(1:0.5:-2).
func (p *parser) sigmoid() (Leaf, error) {
	k, err := p.input()
	if err != nil {
		return nil, err
	}
	s := &Sigmoid{Input: k - 1}
	for _, x := range []*float64{&s.At, &s.Width} {
		if !p.take(":") {
			return nil, errors.New("want a colon")
		}
		if *x, err = p.number(); err != nil {
			return nil, err
		}
	}
	if !p.take(")") {
		return nil, errors.New("want )")
	}
	return s, nil
}
