package tile

import "math"

// exp2Table is 2^(i/8), and exp2Poly a polynomial close to (2^r−1)/r on
// [0,1/8] (computed as in gen/poly.go).
var (
	exp2Table [8]float64
	exp2Poly  = [...]float64{
		0.69314718055944491, 0.24022650703689133, 0.05550410464066418,
		0.0096182247317313924, 0.0013322088664530242, 0.00016077625716794585,
	}
)

func init() {
	for i := range exp2Table {
		exp2Table[i] = math.Exp2(float64(i) / 8)
	}
}

// exp2 returns 2^t for t ≤ 0, or 0 where that is not a normal number.
func exp2(t float64) float64 {
	if t < -1022 {
		return 0
	}
	m := math.Floor(8 * t)
	r := t - m/8
	q := exp2Poly[5]
	for i := 4; i >= 0; i-- {
		q = q*r + exp2Poly[i]
	}
	i := int64(m)
	p := exp2Table[i&7] * (1 + r*q)
	return math.Float64frombits(math.Float64bits(p) + uint64(i>>3)<<52)
}
