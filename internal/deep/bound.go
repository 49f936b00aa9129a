package deep

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// ChunkRows is how many rows are computed side by side.
const ChunkRows = 64

// Sample is a network at a point with its frequencies drawn.
type Sample struct {
	net    *Network
	x      []float64
	layers []*weights
	key    random.Key
}

// At returns the network at x with the random numbers of a step, counted from 1. It panics if x has another length.
func (n *Network) At(x []float64, step int) *Sample {
	if len(x) != n.size {
		panic(fmt.Sprintf("deep: %d numbers for a network of %d", len(x), n.size))
	}
	s := &Sample{net: n, x: x, key: random.Key{Seed: n.Seed, Iter: step}}
	for l, y := range n.layers {
		var eps []float64
		if n.Frequencies == Resampled {
			eps = n.normals(l, step, y.in*y.freq)
		} else {
			eps = n.fixed[l]
		}
		s.layers = append(s.layers, n.weights(l, x, eps))
	}
	return s
}

// run is the way of a chunk through the layers.
type run struct {
	passes []*pass
	noise  []matrix // of the hidden layers
}

// forward sends rows through the layers. r gives the random numbers of hidden layers.
func (s *Sample) forward(rows matrix, normal func([]float64)) *run {
	out, z := &run{}, rows
	for l, w := range s.layers {
		p := w.forward(z)
		out.passes = append(out.passes, p)
		if l == len(s.layers)-1 {
			break
		}
		e := newMatrix(rows.Rows, w.out)
		normal(e.Data)
		out.noise = append(out.noise, e)
		z = newMatrix(rows.Rows, w.out+rows.Cols)
		for i := range rows.Rows {
			to := z.Data[i*z.Cols : (i+1)*z.Cols]
			for q := range w.out {
				k := i*w.out + q
				to[q] = p.mean.Data[k] + math.Sqrt(p.variance.Data[k])*e.Data[k]
			}
			copy(to[w.out:], rows.Data[i*rows.Cols:(i+1)*rows.Cols])
		}
	}
	return out
}

// backward adds to grad what the derivatives by the last layer's means and variances say of all parameters.
func (r *run) backward(dMean, dVariance matrix, grad []float64) {
	for l := len(r.passes) - 1; l >= 0; l-- {
		dz := r.passes[l].backward(dMean, dVariance, grad)
		if l == 0 {
			return
		}
		before, e := r.passes[l-1], r.noise[l-1]
		dMean, dVariance = newMatrix(dz.Rows, before.out), newMatrix(dz.Rows, before.out)
		for i := range dz.Rows {
			for q := range before.out {
				k := i*before.out + q
				dMean.Data[k] = dz.Data[i*dz.Cols+q]
				if v := before.variance.Data[k]; v > 0 {
					dVariance.Data[k] = dMean.Data[k] * e.Data[k] / (2 * math.Sqrt(v))
				}
			}
		}
	}
}

// gather returns some rows of the inputs as a matrix.
func gather(in *kernel.Inputs, rows []int) matrix {
	z := newMatrix(len(rows), in.Dim())
	for i, row := range rows {
		copy(z.Data[i*z.Cols:], in.Row(row))
	}
	return z
}

// Terms say which rows' expectations are summed up: chunk by chunk of 64 rows, in their order.
type Terms struct {
	Rows   []int
	Factor float64 // of all
	Slopes bool    // the gradient, too
}

// Chunks returns their number.
func (t *Terms) Chunks() int { return (len(t.Rows) + ChunkRows - 1) / ChunkRows }

// Chunk returns the rows of a chunk, from 0.
func (t *Terms) Chunk(c int) []int { return t.Rows[c*ChunkRows : min((c+1)*ChunkRows, len(t.Rows))] }

// Summer computes what chunks of rows come to, with others maybe.
type Summer interface {
	// Sum has take told what each chunk comes to, in their order: what Sample.Chunk returns of it. Its errors are that of ctx, and one of numbers that were wrong.
	Sum(ctx context.Context, s *Sample, t *Terms, take func(value float64, grad []float64)) error
}

// Alone is a Summer on the cores of a budget.
type Alone struct {
	In *kernel.Inputs
	*parallel.Budget
}

// window is how many chunks are computed before they are added up.
const window = 16

// Sum computes the chunks.
func (a Alone) Sum(ctx context.Context, s *Sample, t *Terms, take func(value float64, grad []float64)) error {
	values, grads := make([]float64, window), make([][]float64, window)
	for lo := 0; lo < t.Chunks(); lo += window {
		some := min(window, t.Chunks()-lo)
		a.NewLoop(func(_, c int) {
			if ctx.Err() == nil {
				values[c], grads[c] = s.Chunk(a.In, t.Chunk(lo+c), lo+c, t.Factor, t.Slopes)
			}
		}).Run(some)
		if err := ctx.Err(); err != nil {
			return err
		}
		for c := range some {
			take(values[c], grads[c])
		}
	}
	return nil
}

// X returns the parameters, to read, and Step the step whose random numbers are used.
func (s *Sample) X() []float64 { return s.x }

// Step returns the step whose random numbers are used.
func (s *Sample) Step() int { return s.key.Iter }

// Expected adds to grad, if it is not nil, the gradient of Σ E log p(y_i|f_i) over rows, times a factor, and returns that sum times the factor: both estimates without bias. Errors are those of
// the summer.
func (s *Sample) Expected(ctx context.Context, rows []int, factor float64, grad []float64, by Summer) (float64, error) {
	t := &Terms{Rows: rows, Factor: factor, Slopes: grad != nil}
	values := make([]float64, 0, t.Chunks())
	err := by.Sum(ctx, s, t, func(value float64, g []float64) {
		values = append(values, value)
		if grad != nil {
			floats.Add(grad, g)
		}
	})
	if err != nil {
		return 0, err
	}
	return floats.Sum(values), nil
}

// Chunk returns what a chunk of rows, 64 at most, adds to Expected, and with slopes the gradient. c is its number, which random numbers depend on.
func (s *Sample) Chunk(in *kernel.Inputs, rows []int, c int, factor float64, slopes bool) (sum float64, grad []float64) {
	stream := s.key.Stream(random.Weights, c)
	r := s.forward(gather(in, rows), func(e []float64) { random.Normal(stream, e) })
	last := r.passes[len(r.passes)-1]
	q, own := last.out, s.net.Own()
	dMean, dVariance, noise := newMatrix(len(rows), q), newMatrix(len(rows), q), make([]float64, q)
	d := Slopes{Own: make([]float64, s.net.out.Params())}
	for i, row := range rows {
		lo, hi := i*q, (i+1)*q
		random.Normal(stream, noise)
		d.Mean, d.Variance = dMean.Data[lo:hi], dVariance.Data[lo:hi]
		sum += s.net.out.Row(s.x[own:], row, last.mean.Data[lo:hi], last.variance.Data[lo:hi], noise, d)
	}
	if !slopes {
		return factor * sum, nil
	}
	grad = make([]float64, s.net.size)
	floats.Scale(factor, dMean.Data)
	floats.Scale(factor, dVariance.Data)
	floats.AddScaled(grad[own:], factor, d.Own)
	r.backward(dMean, dVariance, grad)
	return factor * sum, grad
}

// Bound returns an estimate of the bound, without bias, and its gradient, from some rows of n and the random numbers of a step. Errors are those of the
// summer.
func (n *Network) Bound(ctx context.Context, x []float64, total int, rows []int, step int, by Summer) (value float64, grad []float64, err error) {
	grad = make([]float64, n.size)
	value, err = n.At(x, step).Expected(ctx, rows, float64(total)/float64(len(rows)), grad, by)
	if err != nil {
		return 0, nil, err
	}
	return value - n.Divergence(x, grad), grad, nil
}

// Latent returns means and variances of the functions in rows, rows × functions: given a draw of the hidden layers. The only error is that of
// ctx.
func (s *Sample) Latent(ctx context.Context, in *kernel.Inputs, b *parallel.Budget) (mean, variance []float64, err error) {
	q := s.net.out.Functions()
	mean, variance = make([]float64, in.Len()*q), make([]float64, in.Len()*q)
	b.Chunks(in.Len(), ChunkRows, func(_, lo, hi int) {
		if ctx.Err() != nil {
			return
		}
		z := newMatrix(hi-lo, in.Dim())
		for i := range z.Rows {
			copy(z.Data[i*z.Cols:], in.Row(lo+i))
		}
		// The same numbers in every row: a row's answer does not depend on those beside it.
		r := s.forward(z, s.same(z.Rows))
		last := r.passes[len(r.passes)-1]
		copy(mean[lo*q:], last.mean.Data)
		copy(variance[lo*q:], last.variance.Data)
	})
	return mean, variance, ctx.Err()
}

// same returns what fills the numbers of a hidden layer with the same ones in each row.
func (s *Sample) same(rows int) func([]float64) {
	stream := s.key.Stream(random.Weights, -1)
	return func(e []float64) {
		q := len(e) / rows
		random.Normal(stream, e[:q])
		for i := 1; i < rows; i++ {
			copy(e[i*q:(i+1)*q], e[:q])
		}
	}
}
