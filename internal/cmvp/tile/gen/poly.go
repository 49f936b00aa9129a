package main

import "math/big"

const precision = 200 // bits

// exp2Poly returns the coefficients, from the constant 1 upwards, of a
// polynomial close to 2^r on [0,width]: its interpolation at the Chebyshev
// nodes of a slightly larger interval, whose first node is 0, so that 2^0 is
// exact. The relative error is about 2·(ln 2·width/4)^(degree+1)/(degree+1)!.
func exp2Poly(degree int, width float64) []float64 {
	// The polynomial is 1 + r·q(r), q the interpolation of (2^r−1)/r at the
	// other nodes.
	q := interpolate(func(r *big.Float) *big.Float { return quo(sub(exp2(r), num(1)), r) }, chebyshev(degree+1, width)[1:])
	return append([]float64{1}, q...)
}

// log2Poly returns the coefficients, from the constant upwards, of a polynomial
// in v = t² close to log₂((1+t)/(1−t))/t on [0,width], its interpolation at the
// Chebyshev nodes of a slightly larger interval, whose first node is 0. The relative
// error is about (2·√width/(1+√(1−width)))^(2·degree+2)/4^(degree+1).
func log2Poly(degree int, width float64) []float64 {
	return interpolate(func(v *big.Float) *big.Float {
		// 2·log₂e·(1 + v/3 + v²/5 + …)
		sum, power := num(0), num(1)
		for k := 0; k < 100; k++ {
			sum = add(sum, quo(power, num(float64(2*k+1))))
			power = mul(power, v)
		}
		return quo(mul(num(2), sum), ln2Big())
	}, chebyshev(degree+1, width))
}

// interpolate returns the coefficients, from the constant upwards, of the polynomial
// that is f at the nodes, by Newton's divided differences.
func interpolate(f func(x *big.Float) *big.Float, nodes []*big.Float) []float64 {
	n := len(nodes)
	diff := make([]*big.Float, n)
	for i, x := range nodes {
		diff[i] = f(x)
	}
	for k := 1; k < n; k++ {
		for i := n - 1; i >= k; i-- {
			diff[i] = quo(sub(diff[i], diff[i-1]), sub(nodes[i], nodes[i-k]))
		}
	}
	q := []*big.Float{diff[n-1]}
	for k := n - 2; k >= 0; k-- { // to monomials: q = q·(x − node) + diff
		next := []*big.Float{num(0)}
		next = append(next, q...)
		for i, c := range q {
			next[i] = sub(next[i], mul(c, nodes[k]))
		}
		next[0] = add(next[0], diff[k])
		q = next
	}
	coef := make([]float64, n)
	for i, c := range q {
		coef[i], _ = c.Float64()
	}
	return coef
}

// chebyshev returns the n Chebyshev nodes of the interval that ends at width
// and whose first node is 0.
func chebyshev(n int, width float64) []*big.Float {
	nodes := make([]*big.Float, n)
	for i := range nodes {
		// (1 − cos x)/2 = sin²(x/2) with x = (2i+1)π/2n
		s := sin(quo(mul(num(float64(2*i+1)), pi()), num(float64(4*n))))
		nodes[i] = mul(s, s)
	}
	first := nodes[0]
	for i, x := range nodes {
		nodes[i] = mul(num(width), quo(sub(x, first), sub(num(1), first)))
	}
	return nodes
}

// exp2 returns 2^r, 0 ≤ r ≤ 1.
func exp2(r *big.Float) *big.Float {
	x := mul(r, ln2Big())
	sum, term := num(1), num(1)
	for k := 1; k < 60; k++ {
		term = quo(mul(term, x), num(float64(k)))
		sum = add(sum, term)
	}
	return sum
}

// ln2Big returns ln 2 = Σ 1/(k·2^k).
func ln2Big() *big.Float {
	sum := num(0)
	for k, p := 1, 2.0; k <= precision; k, p = k+1, 2*p {
		sum = add(sum, quo(num(1), mul(num(float64(k)), num(p))))
	}
	return sum
}

// sin returns sin x, 0 ≤ x ≤ 2.
func sin(x *big.Float) *big.Float {
	sum, term := num(0), x
	for k := 1; k < 80; k += 2 {
		sum = add(sum, term)
		term = quo(mul(mul(term, x), x), num(-float64((k+1)*(k+2))))
	}
	return sum
}

// pi returns π by Machin's formula, 16·atan(1/5) − 4·atan(1/239).
func pi() *big.Float {
	atanInv := func(n float64) *big.Float {
		sum, power := num(0), quo(num(1), num(n))
		for k := 0; k < 100; k++ {
			t := quo(power, num(float64(2*k+1)))
			if k%2 == 1 {
				t = sub(num(0), t)
			}
			sum = add(sum, t)
			power = quo(power, num(n*n))
		}
		return sum
	}
	return sub(mul(num(16), atanInv(5)), mul(num(4), atanInv(239)))
}

func num(x float64) *big.Float       { return new(big.Float).SetPrec(precision).SetFloat64(x) }
func add(a, b *big.Float) *big.Float { return num(0).Add(a, b) }
func sub(a, b *big.Float) *big.Float { return num(0).Sub(a, b) }
func mul(a, b *big.Float) *big.Float { return num(0).Mul(a, b) }
func quo(a, b *big.Float) *big.Float { return num(0).Quo(a, b) }
