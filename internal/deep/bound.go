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

// chunk is how many rows are computed side by side.
const chunk = 64

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

// Expected adds to grad the gradient of Σ E log p(y_i|f_i) over rows, times a factor, and returns that sum times the factor: both estimates without bias. The only error
// is that of ctx.
func (s *Sample) Expected(ctx context.Context, in *kernel.Inputs, rows []int, factor float64, grad []float64, b *parallel.Budget) (float64, error) {
	chunks := (len(rows) + chunk - 1) / chunk
	values, grads := make([]float64, chunks), make([][]float64, chunks)
	b.NewLoop(func(_, c int) {
		if ctx.Err() != nil {
			return
		}
		grads[c] = make([]float64, s.net.size)
		values[c] = s.expected(in, rows[c*chunk:min((c+1)*chunk, len(rows))], c, factor, grads[c])
	}).Run(chunks)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	for _, g := range grads {
		floats.Add(grad, g)
	}
	return floats.Sum(values), nil
}

// expected is Expected of a chunk.
func (s *Sample) expected(in *kernel.Inputs, rows []int, c int, factor float64, grad []float64) (sum float64) {
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
	floats.Scale(factor, dMean.Data)
	floats.Scale(factor, dVariance.Data)
	floats.AddScaled(grad[own:], factor, d.Own)
	r.backward(dMean, dVariance, grad)
	return factor * sum
}

// Bound returns an estimate of the bound, without bias, and its gradient, from some rows of n and the random numbers of a step. The only
// error is that of ctx.
func (n *Network) Bound(ctx context.Context, x []float64, in *kernel.Inputs, rows []int, step int, b *parallel.Budget) (value float64, grad []float64, err error) {
	grad = make([]float64, n.size)
	value, err = n.At(x, step).Expected(ctx, in, rows, float64(in.Len())/float64(len(rows)), grad, b)
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
	b.Chunks(in.Len(), chunk, func(_, lo, hi int) {
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
