package export

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// Group is a set of arrays over named dimensions, what xarray calls a data set.
// A coordinate is an array of one dimension, which has its name.
type Group struct {
	Name   string
	Attrs  []Attr
	Coords []Array
	Vars   []Array
}

// Array is an array over named dimensions. Data are []float64, []int64 or
// []string, the last dimension running fastest.
type Array struct {
	Name  string
	Dims  []string
	Shape []int
	Data  any
	Attrs []Attr
}

// Attr is an attribute: a string, float64 or int64.
type Attr struct {
	Name  string
	Value any
}

// arrays returns coordinates and variables.
func (g *Group) arrays() []Array { return slices.Concat(g.Coords, g.Vars) }

// The dimensions.
const (
	dimChain = "chain"
	dimDraw  = "draw"
	dimInput = "input"  // by the names of the inputs
	dimObs   = "obs_id" // rows of the table, from 0
)

// Tree returns a source in ArviZ's InferenceData layout.
func Tree(src *Source) []Group {
	groups := []Group{quantities(src)}
	if s := src.stats(); s != nil {
		groups = append(groups, sampleStats(src, s))
	}
	if src.Predictive != nil {
		g := *src.Predictive
		g.Name = "posterior_predictive"
		groups = append(groups, g)
	}
	if src.LogLikelihood != nil {
		g := *src.LogLikelihood
		g.Name = "log_likelihood"
		groups = append(groups, g)
	}
	if src.Data != nil {
		groups = append(groups, observed(src), constant(src))
	}
	for i := range groups {
		groups[i].Attrs = append(common(src), groups[i].Attrs...)
	}
	return groups
}

// common are the attributes that ArviZ's groups have.
func common(src *Source) []Attr {
	return []Attr{
		{"created_at", src.Created.UTC().Format(time.RFC3339Nano)},
		{"creation_library", "ulisse"},
		{"creation_library_version", version.Version},
		{"creation_library_language", "Go"},
		{"inference_library", "ulisse"},
		{"inference_library_version", src.Record.Origin.Version},
	}
}

// Provenance says what draws are of and where they come from.
func Provenance(rec *report.Record) []Attr {
	a := []Attr{
		{"ulisse_name", rec.Spec.Name},
		{"ulisse_method", rec.Run.Plan.Method},
		{"ulisse_kernel", rec.Spec.Model.Kernel},
		{"ulisse_seed", strconv.FormatUint(rec.Spec.Seed, 10)},
		{"ulisse_draws_sha256", report.DrawsSHA256(rec.Run)},
		{"ulisse_data_sha256", rec.Data.SHA256},
		{"ulisse_target", rec.Data.Target},
		{"ulisse_instruction_set", rec.InstructionSet},
		{"ulisse_spec", rec.SpecText},
	}
	if s := rec.Run.Stopped; s != nil {
		a = append(a, Attr{"ulisse_stop_reason", string(s.Reason)})
	}
	o := rec.Origin
	for _, x := range []Attr{{"ulisse_job", o.Job}, {"ulisse_workers", strings.Join(o.Workers, " ")}, {"ulisse_host", o.Host}} {
		if x.Value != "" {
			a = append(a, x)
		}
	}
	return a
}

// count returns a coordinate that counts from 0.
func count(dim string, n int) Array {
	x := make([]int64, n)
	for i := range x {
		x[i] = int64(i)
	}
	return Array{Name: dim, Dims: []string{dim}, Shape: []int{n}, Data: x}
}

func inputs(src *Source) Array {
	names := src.Record.Data.InputNames
	return Array{Name: dimInput, Dims: []string{dimInput}, Shape: []int{len(names)}, Data: names}
}

// quantities holds those of the summary. Those of the inputs, tau[a], tau[b] and so on, are
// one array over the inputs; those of the inputs of a term, trend.tau[a], one over a dimension of
// the term's, trend.input.
func quantities(src *Source) Group {
	rec := src.Record
	n, m := rec.Run.MinDraws(), len(rec.Run.Chains)
	g := Group{Name: "posterior", Coords: []Array{count(dimChain, m), count(dimDraw, n)}, Attrs: Provenance(rec)}
	g.Attrs = append(g.Attrs, Attr{"sampling_time", rec.WallSeconds}, Attr{"tuning_steps", int64(rec.Run.Chains[0].Warmup)})
	q := report.Quantities(rec.Model, &rec.Data)
	known := map[string]bool{} // dimensions
	for i := 0; i < len(q); {
		base, _, vector := strings.Cut(q[i].Name, "[")
		k := i + 1
		a := Array{Name: base, Dims: []string{dimChain, dimDraw}, Shape: []int{m, n}}
		if vector {
			for k < len(q) && strings.HasPrefix(q[k].Name, base+"[") {
				k++
			}
			over := along(base, q[i:k], rec.Data.InputNames)
			a.Dims, a.Shape = append(a.Dims, over.Name), append(a.Shape, k-i)
			if !known[over.Name] {
				known[over.Name] = true
				g.Coords = append(g.Coords, over)
			}
		}
		x := make([]float64, 0, m*n*(k-i))
		for _, ch := range rec.Run.Chains {
			for _, psi := range ch.Draws[:n] {
				for _, y := range q[i:k] {
					x = append(x, y.Of(psi))
				}
			}
		}
		a.Data = x
		g.Vars = append(g.Vars, a)
		i = k
	}
	return g
}

// along returns the coordinate of the elements of a vector of quantities: all inputs, or those
// of a term.
func along(base string, q []report.Quantity, inputs []string) Array {
	names := make([]string, len(q))
	for i := range q {
		names[i] = strings.TrimSuffix(strings.TrimPrefix(q[i].Name, base+"["), "]")
	}
	dim := dimInput
	if !slices.Equal(names, inputs) {
		dim = base[:strings.LastIndex(base, ".")+1] + dimInput
	}
	return Array{Name: dim, Dims: []string{dim}, Shape: []int{len(names)}, Data: names}
}

// whole are the statistics that are whole numbers, where all are known.
var whole = map[string]bool{"probes": true, "unconverged": true, "products": true}

func sampleStats(src *Source, s *report.Stats) Group {
	rec := src.Record
	n, m := rec.Run.MinDraws(), len(rec.Run.Chains)
	g := Group{Name: "sample_stats", Coords: []Array{count(dimChain, m), count(dimDraw, n)}}
	for _, name := range s.Names {
		x := make([]float64, 0, m*n)
		for _, chain := range s.X[name] {
			x = append(x, chain[:n]...)
		}
		a := Array{Name: name, Dims: []string{dimChain, dimDraw}, Shape: []int{m, n}, Data: x}
		if whole[name] && !slices.ContainsFunc(x, math.IsNaN) {
			k := make([]int64, len(x))
			for i, v := range x {
				k[i] = int64(v)
			}
			a.Data = k
		}
		g.Vars = append(g.Vars, a)
	}
	return g
}

// rows returns the coordinate of the training rows: their numbers in the table.
func rows(src *Source) Array {
	table := src.Data.TrainingRows()
	x := make([]int64, len(table))
	for i, row := range table {
		x[i] = int64(row)
	}
	return Array{Name: dimObs, Dims: []string{dimObs}, Shape: []int{len(x)}, Data: x}
}

// observed holds the target as it enters the posterior.
func observed(src *Source) Group {
	d := src.Data
	return Group{Name: "observed_data", Coords: []Array{rows(src)}, Vars: []Array{{Name: "y", Dims: []string{dimObs}, Shape: []int{d.N()}, Data: d.Y,
		Attrs: []Attr{{"long_name", d.Target}, {"comment", "standardised: in the table's units it is target_mean + target_sd*y (constant_data)"}}}}}
}

// constant holds the inputs as they enter the posterior, and the scales.
func constant(src *Source) Group {
	d := src.Data
	n, k := d.N(), d.D()
	x := make([]float64, 0, n*k)
	for i := range n {
		x = append(x, d.X.Row(i)...)
	}
	mean, sd := make([]float64, k), make([]float64, k)
	for i, s := range d.XScale {
		mean[i], sd[i] = s.Mean, s.SD
	}
	byInput := func(name string, x []float64) Array {
		return Array{Name: name, Dims: []string{dimInput}, Shape: []int{k}, Data: x}
	}
	return Group{Name: "constant_data", Coords: []Array{rows(src), inputs(src)}, Vars: []Array{
		{Name: "x", Dims: []string{dimObs, dimInput}, Shape: []int{n, k}, Data: x,
			Attrs: []Attr{{"comment", "standardised: in the table's units it is input_mean + input_sd*x"}}},
		byInput("input_mean", mean), byInput("input_sd", sd),
		{Name: "target_mean", Shape: []int{}, Data: []float64{d.YScale.Mean}, Attrs: []Attr{{"comment", "of " + d.Learnt()}}},
		{Name: "target_sd", Shape: []int{}, Data: []float64{d.YScale.SD}, Attrs: []Attr{{"comment", "of " + d.Learnt()}}},
	}}
}
