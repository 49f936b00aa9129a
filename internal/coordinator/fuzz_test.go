package coordinator

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// What a worker says of the data is refused, or everything can be told with it.
func FuzzLoaded(f *testing.F) {
	for _, text := range []string{
		`null`, `{}`, `{"info":{}}`, `{"info":{"rows":-1}}`,
		`{"info":{"rows":10,"target":"y","inputs":["a","b"],"input_scales":[{"mean":1,"sd":2},{"sd":1e-300}],"target_scale":{"sd":1e300},"sha256":"0123456789012345678901234567890123456789012345678901234567890123"}}`,
		`{"info":{"rows":10,"inputs":["a"],"input_scales":[{"sd":1}],"target_scale":{"sd":1},"truth":{"Sigma":1,"Tau":[1,2],"Lambda":0},"sha256":"0123456789012345678901234567890123456789012345678901234567890123"}}`,
		`{"info":{"rows":10,"inputs":["a","b"],"input_scales":[{"sd":1},{"sd":1}],"target_scale":{"sd":1},"truth":{"Sigma":1,"Tau":[1,2],"Lambda":1},"sha256":"0123456789012345678901234567890123456789012345678901234567890123"}}`,
	} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	f.Fuzz(func(t *testing.T, text []byte, ard bool) {
		var l Loaded
		if json.Unmarshal(text, &l) != nil || l.Info == nil || l.Info.Check() != nil {
			return
		}
		spec, err := job.ParseString("name: fuzz\ndata: {path: t.csv, target: y}\nsampler: {chains: 2}\n")
		if err != nil {
			t.Fatal(err)
		}
		spec.Model.ARD = ard
		m, err := spec.KernelModel(l.Info.D())
		if err != nil {
			t.Fatal(err)
		}
		r := chains.New(chains.NewPlan(spec, m.Names()))
		for c := range r.Chains {
			for range 4 {
				r.Chains[c].Draws = append(r.Chains[c].Draws, make([]float64, m.NumParams()))
			}
		}
		if _, err := json.Marshal(report.Summarize(spec, l.Info, m, r, time.Second, l.InstructionSet)); err != nil {
			t.Fatal(err)
		}
		pbInfo("", l.Info)
	})
}
