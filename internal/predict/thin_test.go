package predict

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// numbered returns chains of draws that tell chain and number.
func numbered(lengths ...int) [][][]float64 {
	var out [][][]float64
	for c, n := range lengths {
		var draws [][]float64
		for t := range n {
			draws = append(draws, []float64{float64(c), float64(t)})
		}
		out = append(out, draws)
	}
	return out
}

func TestThinTakesFromAllChains(t *testing.T) {
	for _, want := range []int{1, 3, 4, 10, 39, 40, 100} {
		got := Thin(numbered(10, 12, 10, 11), want)
		if len(got) != min(want, 40) {
			t.Errorf("%d draws, want %d", len(got), want)
		}
		count := make([]int, 4)
		for i, psi := range got {
			count[int(psi[0])]++
			if psi[1] >= 10 {
				t.Error("a draw that not all chains have")
			}
			for _, other := range got[:i] {
				if slices.Equal(psi, other) {
					t.Errorf("of %d draws %v was taken twice", want, psi)
				}
			}
		}
		if slices.Max(count)-slices.Min(count) > 1 {
			t.Errorf("of %d draws the chains give %v", want, count)
		}
	}
	if got := Thin(numbered(5, 0), 3); len(got) != 0 {
		t.Error("draws of a chain that has none")
	}
	if got := Thin(nil, 0); len(got) != 0 {
		t.Error("draws of no chains")
	}
}

// Chains that hardly move hold few independent draws.
func TestThinCountsIndependentDraws(t *testing.T) {
	walk := func(rho float64) [][][]float64 {
		r := rand.New(rand.NewPCG(1, 2))
		out := make([][][]float64, 4)
		for c := range out {
			x := r.NormFloat64()
			for range 500 {
				x = rho*x + r.NormFloat64()
				out[c] = append(out[c], []float64{x, r.NormFloat64()})
			}
		}
		return out
	}
	if n := len(Thin(walk(0), 0)); n != MaxAutoDraws {
		t.Errorf("%d draws of 2,000 independent ones", n)
	}
	if n := len(Thin(walk(0.98), 0)); n < 5 || n > 60 { // 2000·(1−ρ)/(1+ρ) = 20
		t.Errorf("%d draws of chains that hold about 20", n)
	}
	if n := len(Thin(numbered(2, 2), 0)); n != 2 {
		t.Errorf("%d draws of chains too short to tell", n)
	}
}

func TestPathVisitsNeighbours(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var draws [][]float64
	for range 60 {
		draws = append(draws, []float64{r.NormFloat64(), 100 * r.NormFloat64()})
	}
	order := path(draws)
	seen := slices.Clone(order)
	slices.Sort(seen)
	for i, k := range seen {
		if i != k {
			t.Fatalf("the path visits %v", order)
		}
	}
	length := func(order []int) (d float64) {
		for i := range order[1:] {
			a, b := draws[order[i]], draws[order[i+1]]
			d += (a[0]-b[0])*(a[0]-b[0]) + (a[1]-b[1])*(a[1]-b[1])/1e4
		}
		return d
	}
	straight := make([]int, len(draws))
	for i := range straight {
		straight[i] = i
	}
	if a, b := length(order), length(straight); a > 0.3*b {
		t.Errorf("the path's squared steps are %g, in order of drawing %g", a, b)
	}
}
