package coordinator

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// What a worker says of the data is refused, or everything can be told with it.
func FuzzLoaded(f *testing.F) {
	hash, one := strings.Repeat("0123456789012345", 4), &pb.Scale{Sd: 1}
	for _, d := range []*pb.DataInfo{
		nil, {N: -1}, testInfo().Wire(""),
		{N: 10, Target: "y", Inputs: []string{"a", "b"}, InputScales: []*pb.Scale{{Mean: 1, Sd: 2}, {Sd: 1e-300}}, TargetScale: &pb.Scale{Sd: 1e300}, Sha256: hash},
		{N: 10, Inputs: []string{"a"}, InputScales: []*pb.Scale{one}, TargetScale: one, MadeWith: []float64{1, 1, 2, 0}, Sha256: hash},
		{N: 10, Inputs: []string{"a", "b"}, InputScales: []*pb.Scale{one, one}, TargetScale: one, MadeWith: []float64{1, 1, 2, 1}, Sha256: hash},
		{N: 10, Inputs: []string{"a"}, InputScales: []*pb.Scale{{Sd: math.NaN()}}, TargetScale: one, Sha256: hash},
	} {
		text, err := proto.Marshal(&pb.Loaded{Data: d})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text []byte, ard bool) {
		var l pb.Loaded
		if proto.Unmarshal(text, &l) != nil {
			return
		}
		info := dataset.InfoOf(l.Data)
		if info.Check() != nil {
			return
		}
		spec, err := job.ParseString("name: fuzz\ndata: {path: t.csv, target: y}\nsampler: {chains: 2}\n")
		if err != nil {
			t.Fatal(err)
		}
		spec.Model.ARD = ard
		plan, err := planOf(spec, info)
		if err != nil {
			t.Fatal(err)
		}
		m, err := spec.KernelModel(info)
		if err != nil {
			t.Fatal(err)
		}
		r := chains.New(*plan)
		for c := range r.Chains {
			for range 4 {
				r.Chains[c].Draws = append(r.Chains[c].Draws, make([]float64, m.NumParams()))
			}
		}
		if _, err := json.Marshal(report.Summarize(spec, info, m, r, time.Second, l.InstructionSet)); err != nil {
			t.Fatal(err)
		}
		info.Wire("")
	})
}
