package sampler

import (
	"math"
	"reflect"
	"slices"
	"testing"
)

// Records come back as they were written: without a density, exact, as values alone, and as estimates with and without a value.
func TestRecords(t *testing.T) {
	grad := []float64{1, -2}
	records := []record{
		{[]float64{0.1, 0.2}, nil},
		{[]float64{0.3, 0.4}, &Evidence{LogDet: 5, Quad: 6, LogDetGrad: grad, QuadGrad: []float64{3, 4}}},
		{[]float64{0.5, 0.6}, &Evidence{LogDet: -5, Quad: 7}},
		{[]float64{0.7, 0.8}, &Evidence{LogDet: 9, LogDetVar: 0.1, Quad: 8, LogDetGrad: grad, QuadGrad: grad, GradCov: []float64{1, 0, 0, 2}, Probes: 4}},
		{[]float64{0.9, 1.0}, &Evidence{LogDet: math.NaN(), Quad: 8, LogDetGrad: grad, QuadGrad: grad, GradCov: []float64{1, 0, 0, 2}, Probes: 4}},
	}
	var x []float64
	for i := range records {
		x = records[i].encode(x)
	}
	if len(x) != len(records)*recordSize(2) {
		t.Fatalf("%d numbers for %d records", len(x), len(records))
	}
	got, err := decodeRecords(slices.Clone(x), 2)
	if err != nil {
		t.Fatal(err)
	}
	last := len(got) - 1
	if !math.IsNaN(got[last].LogDet) {
		t.Errorf("a value that was not known is %v", got[last].LogDet)
	}
	got[last].LogDet, records[last].LogDet = 0, 0
	if !reflect.DeepEqual(got, records) {
		t.Errorf("got %+v", got)
	}
}
