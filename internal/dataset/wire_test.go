package dataset

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// A description that went over the wire is what it was, to the last bit.
func TestInfoOverTheWire(t *testing.T) {
	number := rapid.Float64Range(1e-300, 1e300)
	scale := rapid.Custom(func(t *rapid.T) Scale { return Scale{Mean: number.Draw(t, "mean"), SD: number.Draw(t, "sd")} })
	rapid.Check(t, func(t *rapid.T) {
		want := &Info{Rows: rapid.IntRange(1, 1<<40).Draw(t, "rows"), HeldOut: rapid.IntRange(0, 9).Draw(t, "held out"), Target: "y", Offset: rapid.String().Draw(t, "offset"),
			YScale: scale.Draw(t, "y"), SHA256: rapid.String().Draw(t, "hash")}
		for range rapid.IntRange(1, 4).Draw(t, "inputs") {
			want.InputNames = append(want.InputNames, rapid.String().Draw(t, "name"))
			want.XScale = append(want.XScale, scale.Draw(t, "x"))
		}
		if rapid.Bool().Draw(t, "categories") {
			for range want.InputNames {
				want.Levels = append(want.Levels, rapid.SliceOfN(rapid.String(), 1, 3).Draw(t, "levels"))
			}
			want.Levels[0] = nil // one of numbers
		}
		if rapid.Bool().Draw(t, "transform") {
			want.Transform = likelihood.Transform{Kind: rapid.StringN(1, 9, 9).Draw(t, "kind"), Lambda: number.Draw(t, "lambda of it")}
		}
		if rapid.Bool().Draw(t, "noise") {
			want.Noise = &Noise{Column: rapid.String().Draw(t, "column"), Variance: rapid.Bool().Draw(t, "variance"), Weights: rapid.String().Draw(t, "weights"),
				By: rapid.String().Draw(t, "by"), Levels: rapid.SliceOfN(rapid.String(), 1, 3).Draw(t, "noise levels")}
		}
		if rapid.Bool().Draw(t, "read") {
			for range want.InputNames {
				want.Dates = append(want.Dates, Date{Unit: rapid.SampledFrom(DateUnits()).Draw(t, "unit"), Layout: rapid.String().Draw(t, "layout")})
			}
			want.Imputed = []Imputed{{Input: 0, Median: number.Draw(t, "median"), Indicator: len(want.InputNames) - 1}}
			want.Notes = rapid.SliceOfN(rapid.String(), 1, 3).Draw(t, "notes")
		}
		if rapid.Bool().Draw(t, "of classes") {
			want.Classes = []string{rapid.String().Draw(t, "no"), rapid.String().Draw(t, "yes")}
		}
		if rapid.Bool().Draw(t, "generated") {
			want.Truth = &Truth{Sigma: number.Draw(t, "sigma"), Tau: []float64{number.Draw(t, "tau")}, Lambda: number.Draw(t, "lambda")}
		}
		text, err := proto.Marshal(want.Wire("address"))
		if err != nil {
			t.Fatal(err)
		}
		var m pb.DataInfo
		if err := proto.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, InfoOf(&m)); diff != "" || m.Blob != "address" || m.D != int32(want.D()) {
			t.Fatalf("%v\n%s", &m, diff)
		}
	})
	if err := InfoOf(nil).Check(); err == nil {
		t.Error("no description is one")
	}
}
