package modes

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Two modes: one of two peaks with hardly a dip between them, one apart.
var (
	centres = [][]float64{{0, 0}, {3, 0}, {0, 9}}
	shares  = []float64{0.5, 0.3, 0.2}
)

func logDensity(x []float64) float64 {
	terms := make([]float64, len(centres))
	for k, c := range centres {
		terms[k] = math.Log(shares[k]) - 0.5*((x[0]-c[0])*(x[0]-c[0])+(x[1]-c[1])*(x[1]-c[1]))
	}
	return floats.LogSumExp(terms)
}

func peaks() []Peak {
	var out []Peak
	for k, c := range centres {
		out = append(out, Peak{X: c, Value: logDensity(c), LogMass: math.Log(shares[k]), Cov: mat.NewSymDense(2, []float64{1, 0, 0, 1})})
	}
	return out
}

func TestMerge(t *testing.T) {
	p := peaks()
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		var list []Peak
		var want []int
		for _, k := range order {
			list = append(list, p[k])
			want = append(want, []int{0, 0, 1}[k])
		}
		if got := Merge(list, logDensity, 1.5); !slices.Equal(got, want) {
			t.Errorf("order %v: modes %v, want %v", order, got, want)
		}
	}
	if got := Merge(p, logDensity, 0.1); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("with a small drop: modes %v", got)
	}
	// Halfway between two unit normals 9 apart the density is e^(−81/8) of what it is at the
	// top, but for their weights.
	if d := Drop(logDensity, centres[0], centres[2]); math.Abs(d-(81.0/8-math.Log(1+0.5/0.2))) > 0.4 {
		t.Errorf("the density drops by %v", d)
	}
}

// Nearly every draw is assigned to the mode that it comes from, though the peaks'
// covariances are far too small.
func TestAssign(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	p := peaks()
	for i := range p {
		p[i].Cov = mat.NewSymDense(2, []float64{0.05, 0, 0, 0.05})
	}
	var draws [][]float64
	var weights []float64
	var from []int
	for i := range 3000 {
		k := i % 3
		draws = append(draws, []float64{centres[k][0] + r.NormFloat64(), centres[k][1] + r.NormFloat64()})
		weights = append(weights, shares[k])
		from = append(from, []int{0, 0, 1}[k])
	}
	label := Assign(draws, weights, p, []int{0, 0, 1})
	wrong, mass, total := 0, 0.0, 0.0
	for i := range draws {
		if label[i] != from[i] {
			wrong++
		}
		total += weights[i]
		if label[i] == 1 {
			mass += weights[i]
		}
	}
	if wrong > 3 || math.Abs(mass/total-0.2) > 0.002 {
		t.Errorf("%d draws are in the wrong mode; the second holds %v", wrong, mass/total)
	}
	// The same from the maxima and masses of the two modes alone: the first has two peaks, of which the table tells the higher one. Draws
	// have no weights here.
	wrong = 0
	for i, m := range Label(draws, [][]float64{centres[0], centres[2]}, []float64{2.0 / 3, 1.0 / 3}) {
		if m != from[i] {
			wrong++
		}
	}
	if wrong > 3 {
		t.Errorf("%d draws are labelled with the wrong mode", wrong)
	}
	var sets [2][][]float64
	for i, x := range draws {
		sets[label[i]] = append(sets[label[i]], x)
	}
	if s := Separations(sets[0], sets[1]); s[0].Coordinate != 1 || math.Abs(s[0].Distance-9/math.Sqrt2) > 0.3 {
		t.Errorf("separated by %+v", s[0])
	}
}
