package predict

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
)

// Codes that are no level's are refused, and targets may be unknown of some rows.
func TestCheckRequest(t *testing.T) {
	info := &dataset.Info{InputNames: []string{"k", "x"}, XScale: []dataset.Scale{{SD: 1}, {SD: 1}}, Levels: [][]string{{"a", "b", "c"}, nil}}
	nan := math.NaN()
	for _, c := range []struct {
		r    Request
		want string
	}{
		{Request{X: [][]float64{{2, 0.5}, {0, -1}}, Targets: []float64{1, nan}}, ""},
		{Request{X: [][]float64{{2, 0.5}, {3, -1}}}, "row 2: k is 3, but a category's levels are given by their places, from 0 to 2"},
		{Request{X: [][]float64{{0.5, 0.5}}}, "row 1: k is 0.5, but"},
		{Request{X: [][]float64{{-1, 0.5}}}, "row 1: k is -1, but"},
		{Request{X: [][]float64{{nan, 0.5}}}, "row 1 has an input that is not finite"},
		{Request{X: [][]float64{{1, 0.5}}, Targets: []float64{math.Inf(1)}}, "the target of row 1 is infinite"},
	} {
		_, err := CheckRequest(Encode("j", c.r, Options{}, 0), info)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.r, err, c.want)
		}
	}
}

// Of rows some of whose targets are known the others have none, also after a journey, and scores are of those alone.
func TestSomeTargets(t *testing.T) {
	nan := math.NaN()
	r := Request{X: [][]float64{{1}, {2}}, Targets: []float64{nan, 3}}
	sent := []Row{{Mean: 1, SD: 1, Target: nan, LogDensity: nan, CRPS: nan, PIT: nan}, {Mean: 2, SD: 1, Target: 3, LogDensity: -2, CRPS: 0.5, PIT: 0.75}}
	rows, _, err := Answered(Answer(sent, Stats{}, [][]float64{{1}}), r)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteCSV(&b, rows, []string{"x"}, nil, nil); err != nil || b.String() != "row,mean,sd,target,log_density,crps,pit\n1,1,1,NaN,NaN,NaN,NaN\n2,2,1,3,-2,0.5,0.75\n" {
		t.Errorf("%v\n%s", err, b.String())
	}
	if s := Score(rows, likelihood.Gaussian{}); s.Rows != 1 || s.RMSE != 1 || s.MLPD != -2 || s.CRPS != 0.5 || s.Coverage[0].Within != 1 {
		t.Errorf("%+v", s)
	}
}
