package likelihood

import (
	"math"
	"math/rand/v2"
	"sync"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// curve is a likelihood as a function of x: exp(a·x − eˣ), the density of the logarithm of a gamma variable of shape a, up
// to its constant. normals is a mixture that is nearly the same function.
type curve struct {
	a       float64
	linear  bool // it is exp(a·x): there is no eˣ
	normals []component
}

// component is a normal distribution in a mixture.
type component struct {
	log            float64 // of its weight over √(2π·variance)
	mean, variance float64
}

func (c component) at(x float64) float64 { return c.log - (x-c.mean)*(x-c.mean)/(2*c.variance) }

// value returns the logarithm of the likelihood.
func (c *curve) value(x float64) float64 {
	if c.linear {
		return c.a * x
	}
	return c.a*x - math.Exp(x)
}

// near returns the logarithm of the mixture, and in share each component's part of it, relative to the largest.
func (c *curve) near(x float64, share []float64) (value, total float64) {
	top := math.Inf(-1)
	for k, p := range c.normals {
		share[k] = p.at(x)
		top = max(top, share[k])
	}
	for k := range c.normals {
		share[k] = math.Exp(share[k] - top)
		total += share[k]
	}
	return top + math.Log(total), total
}

// curves holds those of all shapes that were asked for.
var curves sync.Map // of *curve by shape

// curveOf returns the likelihood of shape a, 0 or more.
func curveOf(a float64) *curve {
	if c, ok := curves.Load(a); ok {
		return c.(*curve)
	}
	c, _ := curves.LoadOrStore(a, fitted(a))
	return c.(*curve)
}

// Constants of the mixtures.
const (
	mixtureError  = 1e-4 // root mean square of their relative error, under the likelihood itself
	ends          = 24   // nats below the highest value: there they end
	farthest      = -30  // or here
	beyond        = 10   // where they end there, the components go on for so much
	pinched       = 0.8  // largest sd of a component, in those that the curvature asks for
	leastReach    = 5.5  // sds of a component that the right end is away, at first
	reachStep     = 0.5
	mostReach     = 12
	gridShare     = 0.1 // of the sd that the curvature asks for, between two points of the grid
	gridStep      = 0.15
	rightRelative = 0.5 // how relative errors count: times the power of the likelihood
	leftRelative  = 0.3
)

// fitted returns the likelihood of shape a with its mixture. Each component touches the curve: at its point t, of a list, it
// has the curve's slope. Its precision is more than the curve's own, eᵗ, and so much that it has come down where the curve
// does, which to the right is sudden: (r/d)² more at the distance d of the right end. The weights are fitted by
// nonnegative least squares of relative errors. r is the smallest for which the error is mixtureError: the wider the
// components, the less the indicator says of x, and the better a chain mixes.
func fitted(a float64) *curve {
	c := &curve{a: a}
	left, right := c.reach()
	for r := leastReach; r <= mostReach; r += reachStep {
		c.fit(left, right, r)
		if c.err(left, right) < mixtureError {
			break
		}
	}
	return c
}

// top returns the highest value.
func (c *curve) top() float64 {
	if c.a == 0 {
		return 0
	}
	return c.a*math.Log(c.a) - c.a
}

// reach returns where the curve has come down to ends below its top, on both sides.
func (c *curve) reach() (left, right float64) {
	mode, low := math.Log(max(c.a, 1e-300)), c.top()-ends
	end := func(inside, outside float64) float64 {
		for range 60 {
			if mid := inside + (outside-inside)/2; c.value(mid) > low {
				inside = mid
			} else {
				outside = mid
			}
		}
		return inside
	}
	right = end(max(mode, farthest), max(mode, 0)+10)
	if left = farthest; c.value(left) < low {
		left = end(mode, left)
	}
	return left, right
}

// grid returns points from right to left, closer where the curve bends more.
func grid(left, right float64) []float64 {
	var out []float64
	for x := right; x > left; x -= min(gridShare*math.Exp(-x/2), gridStep) {
		out = append(out, x)
	}
	return out
}

// fit makes the mixture for a reach of its components.
func (c *curve) fit(left, right, reach float64) {
	c.normals = nil
	end := left
	if left == farthest {
		end -= beyond
	}
	for t := right; t > end; {
		v := 1 / (math.Exp(t)/(pinched*pinched) + math.Pow(reach/(right+0.5-t), 2))
		slope := c.a - math.Exp(t)
		c.normals = append(c.normals, component{log: c.value(t) + slope*slope*v/2, mean: t + slope*v, variance: v})
		t -= math.Sqrt(v)
	}
	points := grid(left, right)
	a, b := mat.NewDense(len(points), len(c.normals), nil), mat.NewVecDense(len(points), nil)
	for j, x := range points {
		count := (c.value(x) - c.top()) * rightRelative
		if c.a > 0 && x < math.Log(c.a) {
			count *= leftRelative / rightRelative
		}
		b.SetVec(j, math.Exp(count))
		for k, p := range c.normals {
			a.Set(j, k, math.Exp(count+p.at(x)-c.value(x)))
		}
	}
	for k := range c.normals {
		column := mat.Col(nil, k, a)
		norm := floats.Norm(column, 2)
		floats.Scale(1/norm, column)
		a.SetCol(k, column)
		c.normals[k].log -= math.Log(norm)
	}
	var kept []component
	for k, w := range nonnegative(a, b) {
		if p := c.normals[k]; w > 0 {
			p.log += math.Log(w)
			kept = append(kept, p)
		}
	}
	c.normals = kept
}

// err returns the root mean square of the mixture's relative error, under the curve as a density.
func (c *curve) err(left, right float64) float64 {
	if len(c.normals) == 0 {
		return math.Inf(1)
	}
	share := make([]float64, len(c.normals))
	var sum, total float64
	points := grid(left, right)
	for j, x := range points[1:] {
		w := math.Exp(c.value(x)-c.top()) * (points[j] - x)
		near, _ := c.near(x, share)
		d := near - c.value(x)
		sum, total = sum+w*d*d, total+w
	}
	return math.Sqrt(sum / total)
}

// site is a row's likelihood: a curve in x = (f − shift)/scale.
type site struct {
	*curve
	shift, scale float64
}

// normalMixtures is the augmentation by the components of mixtures of normals (Frühwirth-Schnatter and Wagner 2006; Omori, Chib,
// Shephard and Nakajima 2007), of likelihoods without parameters that are curves in f. A row's state is the mean and the variance
// of its component: its pseudo-target and noise.
//
// The papers approximate the law of auxiliary variables, arrivals of a Poisson process or squared noise. Here it is
// the likelihood itself that is nearly a mixture, so that there are no others, and less is said of f.
type normalMixtures struct{ of func(y float64) site }

// Width returns 2.
func (normalMixtures) Width() int { return 2 }

// Held returns 0: there are no parameters.
func (normalMixtures) Held() int { return 0 }

// Start sets the state that is expected at the most likely f, or one near it where there is none.
func (m normalMixtures) Start(state, y []float64) {
	f := make([]float64, len(y))
	for i, v := range y {
		s := m.of(v)
		f[i] = s.shift + s.scale*math.Log(max(s.a, 0.5))
	}
	m.Expect(state, nil, y, f)
}

// Expect sets the state to the mean precision, and the mean pseudo-target by precision.
func (m normalMixtures) Expect(state, _, y, f []float64) {
	var share []float64
	for i, v := range y {
		s := m.of(v)
		share = sized(share, len(s.normals))
		_, total := s.near((f[i]-s.shift)/s.scale, share)
		var precision, mean float64
		for k, p := range s.normals {
			w := share[k] / total / p.variance
			precision, mean = precision+w, mean+w*p.mean
		}
		s.set(state[2*i:], mean/precision, 1/precision)
	}
}

// Refresh draws each component given f.
func (m normalMixtures) Refresh(r *rand.Rand, state, _, y, f []float64) {
	var share []float64
	for i, v := range y {
		s := m.of(v)
		share = sized(share, len(s.normals))
		_, total := s.near((f[i]-s.shift)/s.scale, share)
		k, u := 0, r.Float64()*total
		for ; k < len(s.normals)-1 && u >= share[k]; k++ {
			u -= share[k]
		}
		s.set(state[2*i:], s.normals[k].mean, s.normals[k].variance)
	}
}

func (s site) set(state []float64, mean, variance float64) {
	state[0], state[1] = s.shift+s.scale*mean, s.scale*s.scale*variance
}

func sized(x []float64, n int) []float64 {
	if cap(x) < n {
		return make([]float64, n)
	}
	return x[:n]
}

// Targets returns the components' means.
func (normalMixtures) Targets(_, state []float64) []float64 { return column(state, 0) }

// Noise returns the components' variances.
func (normalMixtures) Noise(_, state []float64) []float64 { return column(state, 1) }

func column(state []float64, k int) []float64 {
	out := make([]float64, len(state)/2)
	for i := range out {
		out[i] = state[2*i+k]
	}
	return out
}

// NoiseGradient returns nothing: there are no parameters.
func (normalMixtures) NoiseGradient(_, _ []float64) [][]float64 { return nil }

// Excess returns by how much Σ log p(y|f) is more than what the mixtures make of it.
func (m normalMixtures) Excess(_, y, f []float64) float64 {
	var share []float64
	var sum float64
	for i, v := range y {
		s := m.of(v)
		share = sized(share, len(s.normals))
		x := (f[i] - s.shift) / s.scale
		near, _ := s.near(x, share)
		sum += s.value(x) - near
	}
	if math.IsNaN(sum) { // p and p̃ are 0
		return math.Inf(-1)
	}
	return sum
}
