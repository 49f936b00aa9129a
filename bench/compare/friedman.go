package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// Of Friedman's function with outliers.
const (
	ordinaryRows = 90
	outlierRows  = 10
	outlierSets  = 2            // clusters
	clusterSD    = 0.0316227766 // of their inputs: a variance of 0.001
	testRows     = 1000
	friedmanDim  = 10
)

// friedman is the function of Friedman (1991), of the first five inputs.
func friedman(x []float64) float64 {
	return 10*math.Sin(math.Pi*x[0]*x[1]) + 20*(x[2]-0.5)*(x[2]-0.5) + 10*x[3] + 5*x[4]
}

// outliers writes the tables of a set: what to learn from, and what to predict.
func (c *config) outliers(dir string, seed int) (data string, rest []string, err error) {
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	var b strings.Builder
	row := func(x []float64, y float64) {
		for _, v := range x {
			fmt.Fprintf(&b, "%.9g,", v)
		}
		fmt.Fprintf(&b, "%.9g\n", y)
	}
	uniform := func() []float64 {
		x := make([]float64, friedmanDim)
		for k := range x {
			x[k] = r.Float64()
		}
		return x
	}
	head := func() {
		b.Reset()
		for k := range friedmanDim {
			fmt.Fprintf(&b, "x%d,", k+1)
		}
		b.WriteString("y\n")
	}
	head()
	for range ordinaryRows {
		x := uniform()
		row(x, friedman(x)+r.NormFloat64())
	}
	switch c.friedman {
	case "scattered":
		for range outlierRows {
			row(uniform(), 15+3*r.NormFloat64())
		}
	case "clusters":
		for range outlierSets {
			centre := uniform()
			for range outlierRows / outlierSets {
				x := make([]float64, friedmanDim)
				for k := range x {
					x[k] = centre[k] + clusterSD*r.NormFloat64()
				}
				row(x, r.NormFloat64())
			}
		}
	default:
		return "", nil, fmt.Errorf("-friedman %s: it is scattered or clusters", c.friedman)
	}
	learn, test := filepath.Join(dir, "learn.csv"), filepath.Join(dir, "test.csv")
	if err := os.WriteFile(learn, []byte(b.String()), 0o600); err != nil {
		return "", nil, err
	}
	head()
	for range testRows {
		x := uniform()
		row(x, friedman(x)+r.NormFloat64())
	}
	return fmt.Sprintf("path: %q, target: y", learn), []string{"--data", test}, os.WriteFile(test, []byte(b.String()), 0o600)
}
