package chains

import "math"

// What comes from a driver is checked before it changes a run: a driver that is
// broken, or not one of ours, must not stop those who read it.

// changes returns how many changes an event asks for.
func (e *Event) changes() int {
	n := 0
	for _, is := range []bool{e.Prepared != nil, e.Provisional != nil, e.Settings != nil, e.Checkpoint != nil, e.Stage != nil, e.Evaluated != nil, e.Drawn != nil, e.Diverged != nil, e.Restart != nil, e.Coefficients != nil, e.Stop != nil, e.Extend != nil} {
		if is {
			n++
		}
	}
	return n
}

// maxPsi bounds a parameter: e^±700 are still numbers.
const maxPsi = 700

// point reports whether each of xs is a ψ of d parameters.
func point(d int, xs ...[]float64) bool {
	for _, x := range xs {
		if len(x) != d {
			return false
		}
		for _, v := range x {
			if !(math.Abs(v) <= maxPsi) {
				return false
			}
		}
	}
	return true
}

// square reports whether each of xs holds a d×d matrix, or nothing.
func square(d int, xs ...[]float64) bool {
	for _, x := range xs {
		if len(x) != 0 && len(x) != d*d {
			return false
		}
	}
	return finite(xs...)
}

// Sane reports whether the settings are those of d parameters, and finite.
func (s *Settings) Sane(d int) bool {
	return len(s.C) == d*d && finite(s.C) && square(d, s.ProbeCov, s.SolverCov) && (len(s.Mean) == 0 || point(d, s.Mean)) &&
		s.Probes >= 0 && finite([]float64{s.Step, s.Budget, s.Plain})
}

// A sampler remembers some numbers, some vectors and some matrices.
func (s *State) sane(p *Plan) bool {
	d := p.Params()
	return point(d, s.Psi) && len(s.Memory) <= 4*(1+d)*(1+d) && finite(s.Memory) && s.Restarts >= 0 && s.Latent.Sane(p.Latent)
}

func (s *Stats) sane(d, iterations int) bool {
	return square(d, s.ProbeCov, s.SolverCov) && s.Spreads >= 0 && s.Spreads <= iterations && s.Products >= 0
}

// maxCost bounds what a checkpoint may say to have cost, so that sums stay
// numbers.
const maxCost = 1e200

func (c *Cost) sane() bool {
	for _, n := range []int{c.Gradients, c.Densities, c.Solves, c.Iterations, c.Products, c.Singles, c.Unconverged, c.Shortened} {
		if n < 0 {
			return false
		}
	}
	for _, x := range []float64{c.Pairs, c.PairsRead, c.Seconds} {
		if !(x >= 0 && x <= maxCost) {
			return false
		}
	}
	return true
}

func finite(xs ...[]float64) bool {
	for _, x := range xs {
		for _, v := range x {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return false
			}
		}
	}
	return true
}
