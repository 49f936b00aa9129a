package plots

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/plot/plotter"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
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

// words checks that a picture is well-formed SVG and returns the words in it.
func words(t *testing.T, svg []byte) string {
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
		"trace":        {func(w io.Writer) error { return Trace(w, testDraws(3, 50)) }, []string{"log sigma", "tau[1]", "draw", "chain 3"}},
		"density":      {func(w io.Writer) error { return Density(w, testDraws(2, 50), []float64{0.1, math.NaN()}) }, []string{"log sigma", "density", "truth"}},
		"rhat":         {func(w io.Writer) error { return RunningRHat(w, testDraws(4, 100), 1.01) }, []string{"R-hat", "PSRF, 97.5 % bound", "draws of each chain"}},
		"one chain":    {func(w io.Writer) error { return RunningRHat(w, testDraws(1, 20), 1.01) }, []string{"R-hat"}},
		"rank":         {func(w io.Writer) error { return Rank(w, testDraws(4, 100)) }, []string{"rank of log sigma among all chains / %", "draws", "chain 4", "95 % of bins"}},
		"running mean": {func(w io.Writer) error { return RunningMean(w, testDraws(4, 100)) }, []string{"± 2 sd", "draws of each chain", "log sigma"}},
		"lags":         {func(w io.Writer) error { return Autocorrelation(w, testDraws(4, 100)) }, []string{"lag / draws", "tau[1]", "95 % of independent draws"}},
		"pairs":        {func(w io.Writer) error { return Pairs(w, testDraws(4, 100), Narrow()) }, []string{"log sigma", "tau[1]", "density", "chain 4"}},
		"pairs, modes": {func(w io.Writer) error {
			d := testDraws(2, 100)
			d.Modes, d.Mode = []string{"mode 1 (99.5 %)", "mode 2 (0.5 %)"}, [][]int{make([]int, 100), make([]int, 100)}
			d.Mode[1][7] = 1
			return Pairs(w, d)
		}, []string{"mode 1 (99.5 %)", "mode 2 (0.5 %)", "colours tell the modes"}},
		"course": {func(w io.Writer) error {
			return Course(w, "Solver", "What solves took.", []Panel{
				{X: "iteration", Y: "residual", Log: true, Lines: []Line{{"chain 1", []float64{1, 2, 3, 4}, []float64{1e-3, 0, 1e-6, math.NaN()}}}, Level: 1e-4, LevelName: "tolerance"},
				{X: "time / UTC", Y: "pairs per second", Zero: true, Time: true, Lines: []Line{{"w1", []float64{1e9, 1e9 + 60}, []float64{1, 2}}}}})
		}, []string{"residual", "1e-6", "tolerance", "pairs per second", "01:46"}},
		"no course": {func(w io.Writer) error {
			return Course(w, "Solver", "What solves took.", []Panel{{X: "iteration", Y: "residual", Log: true}})
		}, []string{"residual"}},
		"time line": {func(w io.Writer) error {
			t0 := time.Unix(1e9, 0)
			return Timeline(w, "Workers", "Who was there.", []string{"w1", "w2"}, []Span{{"w1", t0, t0.Add(time.Minute)}, {"gone", t0, t0}},
				[]Mark{{"w1", "joined", t0}, {"w2", "lost", t0.Add(time.Minute)}})
		}, []string{"w1", "w2", "joined", "lost", "time / UTC"}},
		"nobody": {func(w io.Writer) error { return Timeline(w, "Workers", "Who was there.", nil, nil, nil) }, []string{"time / UTC"}},
		"constant": {func(w io.Writer) error {
			return Autocorrelation(w, Draws{Names: []string{"a"}, X: [][][]float64{{{1, 1, 1, 1, 1}}}})
		}, []string{"lag"}},
		"none at all": {func(w io.Writer) error { return Pairs(w, Draws{}) }, nil},
		"calibration": {func(w io.Writer) error { return Calibration(w, []float64{0.1, 0.5, 1, 0, 0.7}) }, []string{"level of the central interval", "observed", "PIT"}},
		"classes": {func(w io.Writer) error {
			return Classes(w, []string{"oak", "elm"}, [][]float64{{0.2, 0.8}, {0.6, 0.4}, {0.9, 0.1}}, []int{1, 1, 0})
		}, []string{"oak", "elm", "share of rows rejected"}},
		"forest": {func(w io.Writer) error {
			return Forest(w, "Length-scales", "How far.", "sd of the input", []Interval{{"hum", 3, 4, 9}, {"hour of the day", 0.2, 0.3, 0.5}, {"a name that is longer than anybody reads", 1, 2, 40}, {"undefined", 1, math.NaN(), 2}})
		}, []string{"hum", "hour of the day", "a name that is longer t…", "sd of the input", "5 % to 95 %", "median", "0.2", "20"}},
		"effect": {func(w io.Writer) error {
			return Effect(w, "Effect of hum on cnt", Axis{Name: "hum"}, "cnt", "q5 to q95", []Curve{{"mean", []float64{1, 2, 3}, []float64{1, 4, 9}, []float64{0, 3, 8}, []float64{2, 5, 10}}})
		}, []string{"Effect of hum on cnt", "hum", "cnt", "q5 to q95", "mean"}},
		"effects": {func(w io.Writer) error {
			return Effect(w, "Effect", Axis{Name: "hum"}, "cnt", "band", []Curve{{"hr = 1", []float64{1, 2}, []float64{1, 4}, nil, nil}, {"hr = 9", []float64{1, 2}, []float64{1, 3}, nil, nil}})
		}, []string{"hr = 1", "hr = 9"}},
		"no forest": {func(w io.Writer) error { return Forest(w, "Length-scales", "How far.", "sd", nil) }, []string{"sd"}},
		"few draws": {func(w io.Writer) error { return Trace(w, testDraws(2, 1)) }, []string{"draw"}},
		"heat map": {func(w io.Writer) error {
			return HeatMap(w, []Heat{{Title: "a table", Rows: []string{"first", "second"}, Cols: []string{"1", "2"}, Z: [][]float64{{-0.3, math.NaN()}, {7, -0.01}}}}, "columns", "what", 1)
		}, []string{"a table — what", "first", "second", "columns", "-0.3", "7.0", "0.0"}},
		"no draws, ranks": {func(w io.Writer) error { return Rank(w, testDraws(2, 0)) }, []string{"rank of"}},
		"no draws, means": {func(w io.Writer) error { return RunningMean(w, testDraws(2, 0)) }, []string{"± 2 sd"}},
		"no draws, lags":  {func(w io.Writer) error { return Autocorrelation(w, testDraws(2, 0)) }, []string{"lag"}},
		"no draws, pairs": {func(w io.Writer) error { return Pairs(w, testDraws(2, 0)) }, []string{"log sigma"}},
		"no draws":        {func(w io.Writer) error { return Density(w, testDraws(2, 0), nil) }, []string{"density"}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := c.draw(&b); err != nil {
				t.Fatal(err)
			}
			got := words(t, b.Bytes())
			for _, w := range c.want {
				if !strings.Contains(got, w) {
					t.Errorf("%q is not in the picture", w)
				}
			}
		})
	}
}

// A picture of many draws is not much larger than one of few.
func TestManyDrawsAreThinned(t *testing.T) {
	many := testDraws(64, 3000)
	for name, draw := range map[string]func(io.Writer) error{
		"trace":        func(w io.Writer) error { return Trace(w, many) },
		"density":      func(w io.Writer) error { return Density(w, many, nil) },
		"rank":         func(w io.Writer) error { return Rank(w, many) },
		"running mean": func(w io.Writer) error { return RunningMean(w, many) },
		"R-hat":        func(w io.Writer) error { return RunningRHat(w, many, 1.01) },
		"pairs":        func(w io.Writer) error { return Pairs(w, many) },
		"lags":         func(w io.Writer) error { return Autocorrelation(w, many) },
	} {
		var b bytes.Buffer
		if err := draw(&b); err != nil {
			t.Fatal(err)
		}
		if most := 2 * maxPanelPoints * 20; b.Len() > most {
			t.Errorf("%s: %d bytes, more than %d", name, b.Len(), most)
		}
	}
}

func TestThinningKeepsExtremes(t *testing.T) {
	x, y := make([]float64, 10_000), make([]float64, 10_000)
	for i := range x {
		x[i] = float64(i)
	}
	y[4321], y[8765] = 7, -7
	pts := thin(x, y, 100)
	if len(pts) > 100 {
		t.Errorf("%d points", len(pts))
	}
	for _, i := range []int{4321, 8765} {
		if !slices.Contains(pts, plotter.XY{X: x[i], Y: y[i]}) {
			t.Errorf("the extreme at %d is missing", i)
		}
	}
}

// Screen readers are told what a picture shows, and a dark scheme changes every
// colour that is used.
func TestPicturesForEverybody(t *testing.T) {
	var b bytes.Buffer
	if err := Trace(&b, testDraws(8, 50)); err != nil {
		t.Fatal(err)
	}
	svg := b.String()
	for _, want := range []string{`role="img"`, "<title>Trace of each chain</title>", "<desc>Each chain&#39;s draws", "8 chains of 50 draws"} {
		if !strings.Contains(svg, want) {
			t.Errorf("%q is not in the picture", want)
		}
	}
	for _, c := range regexp.MustCompile(`style="[^"]*(?:fill|stroke):(#[0-9A-F]{6})`).FindAllStringSubmatch(svg, -1) {
		if !strings.Contains(scheme, "="+`"fill:`+c[1]) {
			t.Errorf("the dark scheme has no %s", c[1])
		}
	}
	for _, style := range regexp.MustCompile(`<text[^>]*style="([^"]*)"`).FindAllStringSubmatch(svg, -1) {
		if !strings.Contains(style[1], "fill:") {
			t.Fatalf("black words, which the dark scheme cannot find: %s", style[1])
		}
	}
}

func TestRanksOfEqualChainsAreFlat(t *testing.T) {
	const n = 4000
	counts, _ := ranks(testDraws(4, n).X[0])
	lo, hi := binomialBand(n, maxRankBins)
	if !(lo < n/maxRankBins && n/maxRankBins < hi) {
		t.Fatalf("a band from %v to %v", lo, hi)
	}
	outside := 0
	for _, k := range counts {
		for _, v := range k {
			if v < lo || v > hi {
				outside++
			}
		}
	}
	if outside > 10 { // of 80, 5 % of which would be 4: P(> 10) < 0.002, and the seed is fixed
		t.Errorf("%d bins of %d outside", outside, 4*maxRankBins)
	}
	x := testDraws(2, n).X[0]
	for t := range x[1] {
		x[1][t] += 1
	}
	counts, _ = ranks(x)
	if counts[0][0] < hi || counts[1][0] > lo {
		t.Errorf("chains that differ have %v and %v low draws", counts[0][0], counts[1][0])
	}
}

func TestBinomialBand(t *testing.T) {
	// Quantiles of Binomial(100, 0.05), from R: qbinom(c(0.025, 0.975), 100, 1/20).
	if lo, hi := binomialBand(100, 20); lo != 1 || hi != 10 {
		t.Errorf("%v to %v", lo, hi)
	}
}

func TestRunningMoments(t *testing.T) {
	x := [][]float64{{1, 2, 6}, {3, 4, 8}}
	at, means, mean, sd := runningMoments(x)
	if !slices.Equal(at, []float64{1, 2, 3}) || !slices.Equal(means[1], []float64{3, 3.5, 5}) || mean[2] != 4 {
		t.Errorf("%v %v %v", at, means, mean)
	}
	if want := stat.StdDev([]float64{1, 2, 6, 3, 4, 8}, nil); math.Abs(sd[2]-want) > 1e-12 {
		t.Errorf("sd %v, not %v", sd[2], want)
	}
}

// The density is that of the draws themselves, though they are counted in bins.
func TestDensityIsThatOfTheDraws(t *testing.T) {
	x := testDraws(1, 300).X[0][0]
	grid, density := kde(x)
	h := 0.9 * math.Min(stat.StdDev(x, nil), (diagnostics.Quantile(x, 0.75)-diagnostics.Quantile(x, 0.25))/1.34) * math.Pow(300, -0.2)
	for i, g := range grid {
		want := 0.0
		for _, v := range x {
			want += math.Exp(-(g-v)*(g-v)/(2*h*h)) / (300 * h * math.Sqrt(2*math.Pi))
		}
		if math.Abs(density[i]-want) > 2e-3 {
			t.Fatalf("at %v: %v, not %v", g, density[i], want)
		}
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

func TestSomeCurvesOfMany(t *testing.T) {
	for n, want := range map[int][]int{1: {0}, 4: {0, 1, 2, 3}, 6: {0, 1, 2, 3, 4, 5}, 11: {0, 2, 4, 6, 8, 10}} {
		if got := Some(n); !slices.Equal(got, want) {
			t.Errorf("of %d curves %v are drawn, want %v", n, got, want)
		}
	}
}
