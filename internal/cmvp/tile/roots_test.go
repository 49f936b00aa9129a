package tile

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// A Matérn 1/2 at a distance w is an RBF at √w, to the bit if the root is rounded correctly: the
// divider's are, and so have to be those of AVX-512 that it does not take. Roots are between 512 and 1,024, where their last bit
// changes g by some units of its own.
func TestRoots(t *testing.T) {
	if !slices.Contains(Available(), AVX512) {
		t.Skip("no AVX-512")
	}
	w := hardRoots()
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		w = append(w, math.Ldexp(1+3*rnd.Float64(), 18))
	}
	w = append(w, 0, 1, 4, 0x1p-900)
	kern := For[float64](AVX512)
	const lanes, d = 8, 5
	for ; len(w) > 0; w = w[min(lanes, len(w)):] {
		var zi, matern, rbf [d * Panel]float64
		var k, want [Strip * Size]float64
		for j := range Panel { // each of the vectors of a row has the same numbers
			x := w[j%lanes%len(w)]
			squares(t, matern[j:], d, x)
			squares(t, rbf[j:], d, math.Sqrt(x))
		}
		kern.Eval[kernel.Matern12](k[:], zi[:], matern[:], d, 1, 0)
		kern.Eval[kernel.RBF](want[:], zi[:], rbf[:], d, 1, 0)
		for r := range Strip {
			for j := range Panel {
				if got, want := k[r*Size+j], want[r*Size+j]; got != want {
					t.Fatalf("2^−√%x in column %d of row %d is %x, want %x", w[j%lanes%len(w)], j, r, got, want)
				}
			}
		}
	}
}

// squares sets each Panel-th of the d features z so that their squares, added one after the other, are x.
func squares(t *testing.T, z []float64, d int, x float64) {
	var sum float64
	for k := range d {
		// A root of 26 bits, not above: none of the sums is more than x.
		root := math.Float64frombits(math.Float64bits(math.Sqrt(x-sum)) &^ (1<<27 - 1))
		z[k*Panel] = root
		sum = math.FMA(root, root, sum)
	}
	if sum != x {
		t.Fatalf("squares add up to %x, not %x", sum, x)
	}
}

// hardRoots returns the numbers in [2^18,2^20) whose root is nearest to the middle of two numbers. With m an odd number
// of 54 bits, the middle of two of 53, they are a = (m²−c)/2^e, a whole, for all small c: m is a root of c modulo 2^e.
func hardRoots() []float64 {
	var w []float64
	for c := int64(-4095); c < 4096; c += 8 { // odd squares are 1 modulo 8
		for _, e := range []uint{54, 55} {
			mod := new(big.Int).Lsh(big.NewInt(1), e)
			root := rootModulo(c, e)
			for _, m := range []*big.Int{
				root, new(big.Int).Sub(mod, root),
				new(big.Int).Add(root, new(big.Int).Rsh(mod, 1)), new(big.Int).Sub(new(big.Int).Rsh(mod, 1), root),
			} {
				m.Mod(m, mod)
				a := new(big.Int).Mul(m, m)
				a.Sub(a, big.NewInt(c)).Rsh(a, e)
				if m.BitLen() == 54 && a.BitLen() == 53 {
					w = append(w, math.Ldexp(float64(a.Int64()), int(e)-88))
				}
			}
		}
	}
	return w
}

// rootModulo returns a root of c, which is 1 modulo 8, modulo 2^e, bit by bit.
func rootModulo(c int64, e uint) *big.Int {
	root, r := big.NewInt(1), new(big.Int)
	for k := uint(3); k < e; k++ { // root² = c modulo 2^k
		r.Mul(root, root).Sub(r, big.NewInt(c))
		if r.Bit(int(k)) == 1 {
			root.SetBit(root, int(k)-1, 1)
		}
	}
	return root
}
