package tile

import (
	"math"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// portable returns the kernels in plain Go.
func portable[T Real]() *Kernels[T] {
	k := &Kernels[T]{Direct: directPortable[T], Trans: transPortable[T], Add: addPortable[T],
		Multiply: multiplyPortable[T], AddScaled: addScaledPortable[T]}
	for _, f := range kernel.Profiles() {
		k.Eval[f] = func(k, zi, zj []T, d, panels int, shape T) {
			evalPortable(f, k, zi, zj, d, panels, func(row []T) { valuesPortable(f, float64(shape), row) })
		}
	}
	return k
}

// portableForms returns the kernels of gradient forms in plain Go.
func portableForms() *FormKernels {
	f := &FormKernels{Sums: sumsPortable, Weigh: weighPortable, Spread: spreadPortable}
	for _, p := range kernel.Profiles() {
		f.Deriv[p] = derivPortable(p, func(_, du, _ float64) float64 { return du })
		f.ScaledDeriv[p] = derivPortable(p, func(udu, _, _ float64) float64 { return udu })
		f.ShapeDeriv[p] = derivPortable(p, func(_, _, da float64) float64 { return da })
	}
	return f
}

// evalPortable sets each row of a panel to its squared distances, or to the numbers of
// inputs that differ, and maps it.
func evalPortable[T Real](f kernel.Family, k, zi, zj []T, d, panels int, to func(row []T)) {
	for p := range panels {
		for r := range Strip {
			row := k[r*Size+p*Panel:][:Panel]
			clear(row)
			for c := range d {
				x := zi[c*Panel+r]
				for j, z := range zj[(p*d+c)*Panel:][:len(row)] {
					t := x - z
					t *= t
					if f == kernel.Mismatch {
						t = min(t, 1)
					}
					row[j] += t
				}
			}
			to(row)
		}
	}
}

// valuesPortable maps squared distances to g.
func valuesPortable[T Real](f kernel.Family, shape float64, row []T) {
	for j, w := range row {
		x := float64(w)
		if f >= kernel.NumFamilies {
			g, _, _ := shaped(f, x, shape)
			row[j] = T(g)
			continue
		}
		if f != kernel.RBF {
			x = math.Sqrt(x)
		}
		e := exp2(-x)
		switch a := x * math.Ln2; f {
		case kernel.Matern32:
			e *= 1 + a
		case kernel.Matern52:
			e *= 1 + a + a*a/3
		}
		row[j] = T(e)
	}
}

// derivPortable returns the kernel of g and of the derivative that which chooses of u·dg/du, dg/du and
// that by the shape.
func derivPortable(f kernel.Family, which func(udu, du, da float64) float64) func(k, h, zi, zj []float64, d, panels int, shape float64) {
	return func(k, h, zi, zj []float64, d, panels int, shape float64) {
		evalPortable(f, k, zi, zj, d, panels, func([]float64) {})
		for r := range Strip {
			row, deriv := k[r*Size:][:panels*Panel], h[r*Size:][:panels*Panel]
			for j, w := range row {
				if f >= kernel.NumFamilies {
					g, du, da := shaped(f, w, shape)
					row[j], deriv[j] = g, which(w*du, du, da)
					continue
				}
				g, du, udu := covariance(f, w)
				row[j], deriv[j] = g, which(udu, du, 0)
			}
		}
	}
}

// shaped returns g, g' and the derivative by the logarithm of the shape. The exponential is that of this
// package, whose bits are the same on every processor.
func shaped(f kernel.Family, u, a float64) (g, du, da float64) {
	switch f {
	case kernel.Rational:
		l, s := a*math.Log1p(u/a), 1+u/a
		g = exp2(-l * math.Log2E)
		return g, -g / s, g * (u/s - l)
	case kernel.Mismatch:
		g = exp2(-a * u * math.Log2E)
		return g, -a * g, -a * u * g
	}
	return f.Shaped(u, a)
}

// tiny bounds a distance from below where its reciprocal is needed.
const tiny = 1e-150

// covariance returns g, g' and u·g' at the squared distance w.
func covariance(f kernel.Family, w float64) (g, dg, udg float64) {
	if f == kernel.RBF {
		e := exp2(-w)
		return e, -e, -w * math.Ln2 * e
	}
	x := math.Sqrt(w)
	e := exp2(-x)
	a := x * math.Ln2
	switch f {
	case kernel.Matern12:
		return e, -e / (max(x, tiny) * math.Ln2), -a / 2 * e
	case kernel.Matern32:
		return (1 + a) * e, -3 * e, -a * a / 2 * e
	default:
		return (1 + a + a*a/3) * e, -5.0 / 3 * (1 + a) * e, -a * a / 6 * (1 + a) * e
	}
}

func directPortable[T Real](y []float64, ldy int, k, _, v []T, s, panels int) {
	for r := range Strip {
		row := k[r*Size:][:panels*Panel]
		for c := range s {
			y[c*ldy+r] += float64(dot(row, v[c*Size:][:len(row)]))
		}
	}
}

// dot returns Σ a·b, added in four lanes; the length is a multiple of four.
func dot[T Real](a, b []T) T {
	var s0, s1, s2, s3 T
	for len(a) >= 4 && len(b) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	return (s0 + s1) + (s2 + s3)
}

func transPortable[T Real](y, k, _, v []T, ldv, s, panels int) {
	for c := range s {
		yc := y[c*Size:][:panels*Panel]
		for r := range Strip {
			x := v[c*ldv+r]
			for j, kj := range k[r*Size:][:len(yc)] {
				yc[j] += kj * x
			}
		}
	}
}

func addPortable[T Real](y []float64, x []T, n int) {
	y = y[:n]
	for i, v := range x[:n] {
		y[i] += float64(v)
	}
}

func multiplyPortable[T Real](dst, a, b []T, n int) {
	dst, b = dst[:n], b[:n]
	for i, x := range a[:n] {
		dst[i] = x * b[i]
	}
}

func addScaledPortable[T Real](y, x []T, c T, n int) {
	y = y[:n]
	for i, v := range x[:n] {
		y[i] += c * v
	}
}

func sumsPortable(sum, k, h, ui, vi, uj, vj []float64, s, ld, panels int) {
	var w [Strip * Size]float64
	var wk [1]float64
	weighPortable(wk[:], w[:], k, h, ui, vi, uj, vj, s, ld, panels)
	sum[0] += wk[0]
	for r := range Strip {
		for _, x := range w[r*Size:][:panels*Panel] {
			sum[1] += x
		}
	}
}

func weighPortable(sum, m, k, h, ui, vi, uj, vj []float64, s, ld, panels int) {
	for p := range panels {
		for r := range Strip {
			w := m[r*Size+p*Panel:][:Panel]
			clear(w)
			for c := range s {
				x, y := ui[c*Panel+r], vi[c*Panel+r]
				u, v := uj[(p*ld+c)*Panel:][:len(w)], vj[(p*ld+c)*Panel:][:len(w)]
				for j := range w {
					w[j] += x*v[j] + y*u[j]
				}
			}
			sum[0] += dot(w, k[r*Size+p*Panel:][:len(w)])
			for j, h := range h[r*Size+p*Panel:][:len(w)] {
				w[j] *= h
			}
		}
	}
}

func spreadPortable(dst, m, zi, zj []float64, d, panels int) {
	for k := range d {
		var sum float64
		for p := range panels {
			z := zj[(p*d+k)*Panel:][:Panel]
			for r := range Strip {
				x := zi[k*Panel+r]
				for l, w := range m[r*Size+p*Panel:][:len(z)] {
					t := x - z[l]
					sum += w * t * t
				}
			}
		}
		dst[k] += sum
	}
}

func updatePortable(c, a, b []float64, ld, strips, k int) {
	for s := range strips {
		for i := range Strip {
			col := c[s*ld+i*Strip:][:Strip]
			for j := range k {
				y := b[j*Strip+i]
				for r, x := range a[s*ld+j*Strip:][:len(col)] {
					col[r] -= x * y
				}
			}
		}
	}
}

func solvePortable(c, l, inv []float64, ld, strips int) {
	for s := range strips {
		for i := range Strip {
			col := c[s*ld+i*Strip:][:Strip]
			for j := range i {
				y := l[j*Strip+i]
				for r, x := range c[s*ld+j*Strip:][:len(col)] {
					col[r] -= x * y
				}
			}
			for r := range col {
				col[r] *= inv[i]
			}
		}
	}
}
