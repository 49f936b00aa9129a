package posterior

import (
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/integrate/quad"
)

// hermiteNodes is the number of nodes of expectations under a normal variable: exact for polynomials of a degree of 39.
const hermiteNodes = 20

// hermite is the rule for a standard normal variable.
var hermite = newHermite(hermiteNodes)

type rule struct{ nodes, weights []float64 }

func newHermite(n int) rule {
	r := rule{make([]float64, n), make([]float64, n)}
	quad.Hermite{}.FixedLocations(r.nodes, r.weights, math.Inf(-1), math.Inf(1))
	floats.Scale(math.Sqrt2, r.nodes)
	floats.Scale(1/math.Sqrt(math.Pi), r.weights)
	return r
}
