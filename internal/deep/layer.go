package deep

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// matrix is a dense matrix by rows.
type matrix = blas64.General

func newMatrix(rows, cols int) matrix {
	return matrix{Rows: rows, Cols: cols, Stride: max(1, cols), Data: make([]float64, rows*cols)}
}

// over returns a matrix over numbers that are there.
func over(rows, cols int, data []float64) matrix {
	return matrix{Rows: rows, Cols: cols, Stride: max(1, cols), Data: data[:rows*cols]}
}

// times sets c = op(a)·op(b) + beta·c.
func times(ta, tb blas.Transpose, a, b matrix, beta float64, c matrix) {
	blas64.Gemm(ta, tb, 1, a, b, beta, c)
}

// weights are what all rows of a step share in a layer.
type weights struct {
	*layer
	net    *Network
	x      []float64 // all parameters
	omega  matrix    // D×N
	wMean  matrix    // of W, features × Q
	wVar   matrix
	factor float64 // of the features
}

// weights returns those of a layer at x; eps is the normal numbers of its frequencies.
func (n *Network) weights(l int, x, eps []float64) *weights {
	y := &n.layers[l]
	w := &weights{layer: y, net: n, x: x, omega: newMatrix(y.in, y.freq), wMean: over(y.width, y.out, x[y.m:]), wVar: newMatrix(y.width, y.out)}
	for k := range y.in {
		rate := math.Exp(0.5 * (math.Ln2 + x[y.rate(k)]))
		for i := k * y.freq; i < (k+1)*y.freq; i++ {
			if n.variational() {
				w.omega.Data[i] = x[y.mu+i] + math.Exp(0.5*x[y.beta+i])*eps[i]
			} else {
				w.omega.Data[i] = rate * eps[i]
			}
		}
	}
	for i := range w.wVar.Data {
		w.wVar.Data[i] = math.Exp(x[y.s+i])
	}
	w.factor = math.Exp(0.5*x[y.sigma]) / math.Sqrt(float64(y.freq))
	if n.Covariance == ArcCosine {
		w.factor *= math.Sqrt2
	}
	return w
}

// features returns the features of rows z.
func (w *weights) features(z matrix) matrix {
	a, phi := newMatrix(z.Rows, w.freq), newMatrix(z.Rows, w.width)
	times(blas.NoTrans, blas.NoTrans, z, w.omega, 0, a)
	for i := range z.Rows {
		out := phi.Data[i*w.width : (i+1)*w.width]
		for j, v := range a.Data[i*w.freq : (i+1)*w.freq] {
			if w.net.Covariance == RBF {
				s, c := math.Sincos(v)
				out[j], out[w.freq+j] = w.factor*c, w.factor*s
			} else {
				out[j] = w.factor * max(0, v)
			}
		}
	}
	return phi
}

// pass is a layer on the rows of a chunk.
type pass struct {
	*weights
	z, phi, square matrix // rows × D, rows × features, and the squares of these
	mean, variance matrix // of the answers, rows × Q
}

// forward has the layer answer rows z.
func (w *weights) forward(z matrix) *pass {
	p := &pass{weights: w, z: z, phi: w.features(z), square: newMatrix(z.Rows, w.width), mean: newMatrix(z.Rows, w.out), variance: newMatrix(z.Rows, w.out)}
	for i, v := range p.phi.Data {
		p.square.Data[i] = v * v
	}
	times(blas.NoTrans, blas.NoTrans, p.phi, w.wMean, 0, p.mean)
	times(blas.NoTrans, blas.NoTrans, p.square, w.wVar, 0, p.variance)
	return p
}

// backward adds to grad what the derivatives by means and variances say of the layer's parameters, and returns those by z.
func (p *pass) backward(dMean, dVariance matrix, grad []float64) (dz matrix) {
	w, rows := p.weights, p.z.Rows
	times(blas.Trans, blas.NoTrans, p.phi, dMean, 1, over(w.width, w.out, grad[w.m:]))
	byVar := newMatrix(w.width, w.out)
	times(blas.Trans, blas.NoTrans, p.square, dVariance, 0, byVar)
	for i, v := range byVar.Data {
		grad[w.s+i] += v * w.wVar.Data[i]
	}
	dPhi, bySquare := newMatrix(rows, w.width), newMatrix(rows, w.width)
	times(blas.NoTrans, blas.Trans, dMean, w.wMean, 0, dPhi)
	times(blas.NoTrans, blas.Trans, dVariance, w.wVar, 0, bySquare)
	sum := 0.0
	for i, v := range p.phi.Data {
		dPhi.Data[i] += 2 * v * bySquare.Data[i]
		sum += dPhi.Data[i] * v
	}
	grad[w.sigma] += 0.5 * sum
	da, dOmega := p.throughFeatures(dPhi), newMatrix(w.in, w.freq)
	times(blas.Trans, blas.NoTrans, p.z, da, 0, dOmega)
	w.throughFrequencies(dOmega, grad)
	dz = newMatrix(rows, w.in)
	times(blas.NoTrans, blas.Trans, da, w.omega, 0, dz)
	return dz
}

// throughFeatures returns the derivatives by zΩ from those by the features.
func (p *pass) throughFeatures(dPhi matrix) matrix {
	w := p.weights
	da := newMatrix(p.z.Rows, w.freq)
	for i := range p.z.Rows {
		phi, d, out := p.phi.Data[i*w.width:(i+1)*w.width], dPhi.Data[i*w.width:(i+1)*w.width], da.Data[i*w.freq:(i+1)*w.freq]
		for j := range out {
			switch {
			case w.net.Covariance == RBF:
				out[j] = phi[j]*d[w.freq+j] - phi[w.freq+j]*d[j]
			case phi[j] > 0:
				out[j] = w.factor * d[j]
			}
		}
	}
	return da
}

// throughFrequencies adds to grad the derivatives by what makes Ω.
func (w *weights) throughFrequencies(dOmega matrix, grad []float64) {
	for k := range w.in {
		for i := k * w.freq; i < (k+1)*w.freq; i++ {
			d, omega := dOmega.Data[i], w.omega.Data[i]
			if w.net.variational() {
				grad[w.mu+i] += d
				grad[w.beta+i] += 0.5 * d * (omega - w.x[w.mu+i])
			} else {
				grad[w.rate(k)] += 0.5 * d * omega
			}
		}
	}
}
