package kernel

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Linear is the leaf Σ_k (x_k−c_k)(y_k−c_k) over some inputs, of functions that are straight lines
// and zero at c, plus 1 if it has a constant. It has no parameters: its weight is the variance of
// the term.
type Linear struct {
	plain
	Constant bool
	Inputs   []int     // from 0, in any order
	Centres  []float64 // of each input
}

const linearName = "linear"

// NumFeatures returns the number of inputs, and one more for a constant.
func (l *Linear) NumFeatures() int {
	if l.Constant {
		return len(l.Inputs) + 1
	}
	return len(l.Inputs)
}

// String returns the leaf in the canonical text, where 0 stands for the constant, and a centre that is
// not 0 after its input: linear(0,1,3:-0.5).
func (l *Linear) String() string {
	var parts []string
	if l.Constant {
		parts = append(parts, "0")
	}
	for i, k := range l.Inputs {
		text := fmt.Sprint(k + 1)
		if c := l.Centres[i]; c != 0 {
			text += ":" + strings.TrimPrefix(constant(c), "=")
		}
		parts = append(parts, text)
	}
	return linearName + "(" + strings.Join(parts, ",") + ")"
}

func (l *Linear) check(dim int) error {
	switch {
	case l.NumFeatures() == 0:
		return fmt.Errorf("the %s has no inputs", linearName)
	case len(l.Centres) != len(l.Inputs):
		return fmt.Errorf("the %s has %d centres for %d inputs", linearName, len(l.Centres), len(l.Inputs))
	}
	for i, k := range l.Inputs {
		switch c := l.Centres[i]; {
		case k < 0 || k >= dim:
			return fmt.Errorf("%v is over input %d of %d", l, k+1, dim)
		case slices.Contains(l.Inputs[:i], k):
			return fmt.Errorf("%v is over input %d twice", l, k+1)
		case math.IsNaN(c) || math.IsInf(c, 0):
			return fmt.Errorf("%v has the centre %g", l, c)
		}
	}
	return nil
}

func (l *Linear) at([]float64) LeafAt { return linearAt{l} }

// linearAt is the leaf, which has no parameters.
type linearAt struct{ *Linear }

func (linearAt) Shape() float64 { return 0 }

// Feature returns 1 for the constant, which is the first, and x_k−c_k.
func (l *Linear) Feature(feature int, x []float64, _ *Inputs) float64 {
	if l.Constant {
		if feature == 0 {
			return 1
		}
		feature--
	}
	return x[l.Inputs[feature]] - l.Centres[feature]
}

func (l *Linear) value(x, y []float64) float64 {
	var sum float64
	if l.Constant {
		sum = 1
	}
	for i, k := range l.Inputs {
		sum += (x[k] - l.Centres[i]) * (y[k] - l.Centres[i])
	}
	return sum
}

func (l *Linear) addSlopes(dst []float64, w float64, _, y []float64) {
	for i, k := range l.Inputs {
		dst[k] += w * (y[k] - l.Centres[i])
	}
}

func (l *Linear) addSlopeVariances(dst []float64, w float64, _ []float64) {
	for _, k := range l.Inputs {
		dst[k] += w
	}
}

// linear reads the rest of a leaf such as linear(0,1,3:-0.5).
func (p *parser) linear() (Leaf, error) {
	l := &Linear{}
	for first := true; ; first = false {
		if first && p.take("0") {
			l.Constant = true
		} else {
			k, err := p.input()
			if err != nil {
				return nil, err
			}
			var c float64
			if p.take(":") {
				if c, err = p.number(); err != nil {
					return nil, err
				}
			}
			l.Inputs, l.Centres = append(l.Inputs, k-1), append(l.Centres, c)
		}
		if p.take(")") {
			return l, nil
		}
		if !p.take(",") {
			return nil, fmt.Errorf("want , or )")
		}
	}
}
