package cmvp

import (
	"fmt"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Elements evaluates strips of K = K_f(θ) + diag(noise) and weighted sums of its
// derivatives, for those who store K (package evidence). Its reading methods may be
// called from several goroutines, each under a worker's number of its own.
type Elements struct {
	in    *kernel.Inputs
	mul   multiplier[float64] // of which the packed features and the strips are used
	forms formEngine          // of which what evaluates derivatives is used
	sum   *formSums
	f     *kernel.Function
	noise []float64
	ws    [][]float64 // by worker, of Fill
}

// NewElements returns the elements over the inputs. Set must be called before they are
// used. It panics if tile.Default has an error.
func NewElements(in *kernel.Inputs, c *kernel.Covariance, b *parallel.Budget) *Elements {
	isa, err := tile.Default()
	if err != nil {
		panic(err)
	}
	e := &Elements{in: in, sum: sumsOver(c), ws: make([][]float64, b.MaxWorkers())}
	e.mul.in, e.mul.strips = in, newStrips(c, tile.For[float64](isa))
	e.mul.z = e.mul.strips.packed(in.Len())
	e.forms = formEngine{mul: &e.mul, kern: tile.FormsFor(isa), sum: e.sum, ws: make([]formSpace, b.MaxWorkers())}
	return e
}

// Set changes θ and the variances of the noise, one for all rows or one for each.
func (e *Elements) Set(f *kernel.Function, noise []float64) {
	if len(noise) != 1 && len(noise) != e.in.Len() {
		panic(fmt.Sprintf("cmvp: %d noise variances for %d rows", len(noise), e.in.Len()))
	}
	e.f, e.noise = f, noise
	e.mul.strips.set(f)
	e.mul.strips.pack(e.mul.z, e.in, e.in, f)
	e.forms.pack(f)
}

// Len returns n.
func (e *Elements) Len() int { return e.in.Len() }

// NumParams returns the number of the covariance's parameters.
func (e *Elements) NumParams() int { return e.sum.params }

// Noise returns the variance of the noise of a row.
func (e *Elements) Noise(row int) float64 {
	if len(e.noise) == 1 {
		return e.noise[0]
	}
	return e.noise[row]
}

// Fill sets k to the elements of K_f, without noise, in rows [row, row+tile.Strip)
// against columns [col, col+cols): element (r,c) is k[r*tile.Size+c]. col is a multiple
// of tile.Panel, cols at most tile.Size; what lies beyond the last row or column is
// undefined.
func (e *Elements) Fill(worker int, k []float64, row, col, cols int) {
	st := &e.mul.strips
	e.ws[worker] = st.scratch(e.ws[worker])
	st.eval(k, e.ws[worker], e.mul.z, row, e.mul.z, col, tile.Panels(cols))
	scale := e.f.Scale()
	for r := range tile.Strip {
		for c := range k[r*tile.Size:][:cols] {
			k[r*tile.Size+c] *= scale
		}
	}
}

// SumsLen returns how many numbers Sums adds to.
func (e *Elements) SumsLen() int { return e.sum.Len() }

// Sums adds to sums[g], SumsLen numbers, what Σ w_rc·(∂_iK_f)_rc over a strip is made
// of, for weights w[g] that are laid out as Fill lays out elements, and are zero where
// there is nothing. Reduce returns the derivatives that the sums of all strips come to.
func (e *Elements) Sums(worker int, sums, w [][]float64, row, col, cols int) {
	f, ws := &e.forms, &e.forms.ws[worker]
	f.reserve(ws)
	panels := tile.Panels(cols)
	f.evaluate(ws, row, col, panels)
	for g, weights := range w {
		for _, p := range e.sum.passes {
			to := sums[g][p.first:]
			to[0] += weighted(weights, f.strip(ws, p.k), nil, panels)
			if !p.spread {
				if p.h != p.k {
					to[1] += weighted(weights, f.strip(ws, p.h), nil, panels)
				}
				continue
			}
			weighted(weights, f.strip(ws, p.h), ws.m, panels)
			f.spread(ws, to[1:], p.h.at, row, col, panels)
		}
	}
}

// weighted returns Σ w·x over the panels of a strip, and sets m to w·x if it is not
// nil.
func weighted(w, x, m []float64, panels int) float64 {
	var sum float64
	for r := range tile.Strip {
		at := r * tile.Size
		for c, v := range w[at:][:panels*tile.Panel] {
			v *= x[at+c]
			sum += v
			if m != nil {
				m[at+c] = v
			}
		}
	}
	return sum
}

// Reduce returns the derivatives for each of the covariance's parameters, given the sums
// of all strips.
func (e *Elements) Reduce(sums []float64) []float64 {
	out := make([]float64, e.NumParams())
	e.sum.addForms(out, e.f, sums)
	return out
}
