package plots

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/random"
)

func testDraws(chains, n int) Draws {
	d := Draws{Names: []string{"log sigma", "tau[1]"}}
	for i := range d.Names {
		var x [][]float64
		for c := range chains {
			v := make([]float64, n)
			random.Normal(random.Key{Chain: c, Iter: i}.Stream(random.Noise, 0), v)
			x = append(x, v)
		}
		d.X = append(d.X, x)
	}
	return d
}

// text checks that a picture is well-formed SVG and returns the words in it.
func text(t *testing.T, svg []byte) string {
	t.Helper()
	dec := xml.NewDecoder(bytes.NewReader(svg))
	var words strings.Builder
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			return words.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := tok.(xml.CharData); ok {
			words.Write(c)
			words.WriteByte('\n')
		}
	}
}

func TestPicturesHaveTheirLabels(t *testing.T) {
	for name, c := range map[string]struct {
		draw func(io.Writer) error
		want []string
	}{
		"trace":     {func(w io.Writer) error { return Trace(w, testDraws(3, 50)) }, []string{"log sigma", "tau[1]", "draw", "chain 3"}},
		"density":   {func(w io.Writer) error { return Density(w, testDraws(2, 50), []float64{0.1, math.NaN()}) }, []string{"log sigma", "density", "truth"}},
		"rhat":      {func(w io.Writer) error { return RunningRHat(w, testDraws(4, 100), 1.01) }, []string{"R-hat", "PSRF, 97.5 % bound", "draws of each chain"}},
		"one chain": {func(w io.Writer) error { return RunningRHat(w, testDraws(1, 20), 1.01) }, []string{"R-hat"}},
		"few draws": {func(w io.Writer) error { return Trace(w, testDraws(2, 1)) }, []string{"draw"}},
		"heat map": {func(w io.Writer) error {
			return HeatMap(w, []Heat{{Title: "a table", Rows: []string{"first", "second"}, Cols: []string{"1", "2"}, Z: [][]float64{{-0.3, math.NaN()}, {7, -0.01}}}}, "columns", "what", 1)
		}, []string{"a table — what", "first", "second", "columns", "-0.3", "7.0", "0.0"}},
		"no draws": {func(w io.Writer) error { return Density(w, testDraws(2, 0), nil) }, []string{"density"}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := c.draw(&b); err != nil {
				t.Fatal(err)
			}
			got := text(t, b.Bytes())
			for _, w := range c.want {
				if !strings.Contains(got, w) {
					t.Errorf("%q is not in the picture", w)
				}
			}
		})
	}
}

func TestLongChainsAreThinned(t *testing.T) {
	var short, long bytes.Buffer
	if err := Trace(&short, testDraws(1, maxPoints)); err != nil {
		t.Fatal(err)
	}
	if err := Trace(&long, testDraws(1, 50*maxPoints)); err != nil {
		t.Fatal(err)
	}
	if long.Len() > 2*short.Len() {
		t.Errorf("%d bytes for a long chain, %d for a short one", long.Len(), short.Len())
	}
}

func TestDensityIntegratesToOne(t *testing.T) {
	x := testDraws(1, 300).X[0][0]
	grid, density := kde(x)
	var mass float64
	for i := 1; i < len(grid); i++ {
		mass += (density[i] + density[i-1]) / 2 * (grid[i] - grid[i-1])
	}
	if math.Abs(mass-1) > 0.01 {
		t.Errorf("mass %v", mass)
	}
}
