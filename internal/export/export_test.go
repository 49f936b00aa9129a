package export

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/parquet-go/parquet-go"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// source is a run of three chains with 20, 20 and 19 draws of a model with two
// inputs, with values that a careless writer would spoil.
func source(t testing.TB, ard bool) *Source {
	t.Helper()
	return sourceOf(t, fmt.Sprintf("data: {synthetic: {n: 6, d: 2, sigma: 1, tau: 0.5, lambda: 0.1}}\nmodel: {kernel: matern32, ard: %v}", ard))
}

// sourceOf is source of a model.
func sourceOf(t testing.TB, model string) *Source {
	t.Helper()
	spec := "\nname: tested\n" + model + "\nsampler: {chains: 3}\nseed: 18446744073709551615\n"
	parsed, err := job.ParseString(spec)
	if err != nil {
		t.Fatal(err)
	}
	info := dataset.Info{Rows: 4, HeldOut: 2, Target: "μ/strength", InputNames: []string{"cement", "größe, mm 🙂"}, SHA256: strings.Repeat("ab", 32),
		XScale: []dataset.Scale{{Mean: 0.1, SD: 2}, {Mean: 1. / 3, SD: 10}}, YScale: dataset.Scale{Mean: 5, SD: 3}}
	m, err := parsed.KernelModel(&info)
	if err != nil {
		t.Fatal(err)
	}
	d := &dataset.Dataset{X: kernel.NewInputs(4, 2, []float64{1, -2, 0.1, math.Pi, 1e-300, 4, 5, math.Copysign(0, -1)}), Y: []float64{0.1, 1. / 3, -1e17, 7}, HoldoutRows: []int{0, 3}}
	d.Info = info
	run := &chains.Run{Phase: chains.Done, Prepared: &chains.Prepared{}, Stopped: &chains.Stop{Reason: chains.Converged, Draws: 19}, Chains: make([]chains.Chain, 3)}
	run.Plan.Method, run.Plan.Names = "fisher", m.Names()
	for c := range run.Chains {
		ch := &run.Chains[c]
		ch.Warmup = 7
		for i := range 20 - c/2 {
			psi := make([]float64, m.NumParams())
			random.Normal(random.Key{Chain: c, Iter: i}.Stream(random.Noise, 0), psi)
			ch.Draws = append(ch.Draws, psi)
		}
	}
	run.Chains[0].Draws[0][0] = math.SmallestNonzeroFloat64
	run.Chains[0].Draws[1][0] = math.Copysign(0, -1)
	run.Chains[1].Draws[2][0] = 0.1 + 0.2
	rec := &report.Record{SpecText: spec, Data: d.Info, Run: run, WallSeconds: 1.25, InstructionSet: "portable",
		Origin: report.Origin{Version: "1.2.3", Job: "ab12", Workers: []string{"w1", "w2"}}}
	if err := rec.Open(); err != nil {
		t.Fatal(err)
	}
	s := report.NewStats(run)
	for c := range run.Chains {
		for i := range run.Chains[c].Draws {
			s.Add(run, fmt.Appendf(nil, `{"msg":"gradient","chain":%d,"iter":%d,"probes":%d,"solver_iterations":%d.1,"residual":1e-7,"unconverged":0,"products":%d,"seconds":0.1}`, c+1, 8+i, 4+c, i, i))
		}
	}
	s.X["residual"][1][3] = math.NaN() // a line of the log is lost
	return &Source{Record: rec, Stats: s, Data: d, Created: time.Unix(1e9, 5).UTC(),
		Predictive: &Group{Coords: []Array{count(dimChain, 3), count(dimDraw, 2), count("obs_id", 2)}, Attrs: []Attr{{"what", "a test"}},
			Vars: []Array{{Name: "y", Dims: []string{dimChain, dimDraw, "obs_id"}, Shape: []int{3, 2, 2}, Data: []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, math.Inf(-1)}}}}}
}

// got is an array as a reader saw it: elements as float64 or int64 in
// little-endian bytes, or texts.
type got struct {
	Dims  []string `json:"dims"`
	Shape []int    `json:"shape"`
	Dtype string   `json:"dtype"`
	Bytes string   `json:"bytes"`
	Texts []string `json:"texts"`
	Attrs map[string]any
}

// groups are the groups of a file as a reader saw them.
type groups map[string]struct {
	Attrs  map[string]any `json:"attrs"`
	Arrays map[string]got `json:"arrays"`
	Coords []string       `json:"coords"`
}

func encode(a *Array) got {
	g := got{Dims: append([]string{}, a.Dims...), Shape: append([]int{}, a.Shape...), Attrs: attrMap(a.Attrs)}
	var b bytes.Buffer
	switch x := a.Data.(type) {
	case []string:
		g.Dtype, g.Texts = "str", x
		return g
	case []float64:
		g.Dtype = "float64"
		binary.Write(&b, binary.LittleEndian, x)
	case []int64:
		g.Dtype = "int64"
		binary.Write(&b, binary.LittleEndian, x)
	}
	g.Bytes = base64.StdEncoding.EncodeToString(b.Bytes())
	return g
}

// readerHead begins Python programs that define read(path), which returns
// groups, and readerTail ends them.
const readerHead = `
import base64, json, sys
try:
    import numpy as np
    import %s
except ImportError as e:
    print(e)
    sys.exit(77)
def plain(v):
    return v.item() if hasattr(v, "item") else v
def array(a, dims, attrs):
    a = np.asarray(a)
    out = {"dims": list(dims), "shape": list(a.shape), "Attrs": {k: plain(v) for k, v in attrs.items() if not k.startswith("_")}}
    if a.dtype.kind in "UO":
        return dict(out, dtype="str", texts=[str(x) for x in a.ravel()])
    return dict(out, dtype=a.dtype.name, bytes=base64.b64encode(np.ascontiguousarray(a).tobytes()).decode())
def xgroup(x):
    return {"attrs": {k: plain(v) for k, v in x.attrs.items()}, "coords": sorted(x.coords),
            "arrays": {k: array(v.values, v.dims, v.attrs) for k, v in x.variables.items()}}
`

const readerTail = `
print(json.dumps([read(path) for path in sys.argv[1:]]))
`

// python reads files with Debian's interpreter, to which its packages belong.
func python(t *testing.T, modules, program string, paths ...string) []groups {
	t.Helper()
	const exe = "/usr/bin/python3"
	if _, err := os.Stat(exe); err != nil {
		t.Skip("needs Python:", err)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(exe, append([]string{"-c", fmt.Sprintf(readerHead, modules) + program + readerTail}, paths...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() == 77 {
		t.Skipf("needs Python with numpy and %s (Debian: python3-…): %s", modules, out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var g []groups
	if err := json.Unmarshal(out, &g); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return g
}

// same compares what a reader saw with what was to be written.
func same(t *testing.T, src *Source, saw groups) {
	t.Helper()
	want := groups{}
	for _, g := range Tree(src) {
		e := want[g.Name]
		e.Attrs, e.Arrays = jsonMap(attrMap(g.Attrs)), map[string]got{}
		for _, a := range g.arrays() {
			x := encode(&a)
			x.Attrs = jsonMap(x.Attrs)
			e.Arrays[a.Name] = x
		}
		for _, c := range g.Coords {
			e.Coords = append(e.Coords, c.Name)
		}
		want[g.Name] = e
	}
	if diff := cmp.Diff(want, saw, cmpopts.SortSlices(func(a, b string) bool { return a < b }), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// jsonMap is what a map is after a trip through JSON.
func jsonMap(m map[string]any) map[string]any {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	back := map[string]any{}
	if err := json.Unmarshal(text, &back); err != nil {
		panic(err)
	}
	return back
}

// InferenceData has the dimensions that people of ArviZ expect.
func TestTree(t *testing.T) {
	src := source(t, true)
	dims := map[string][]string{}
	names := ""
	for _, g := range Tree(src) {
		names += g.Name + " "
		for _, a := range g.Vars {
			size := 1
			for _, n := range a.Shape {
				size *= n
			}
			if n := len(fmt.Sprint(a.Shape)); n == 0 || len(a.Shape) != len(a.Dims) {
				t.Errorf("%s/%s has shape %v over %v", g.Name, a.Name, a.Shape, a.Dims)
			}
			dims[g.Name+"/"+a.Name] = a.Dims
		}
	}
	if names != "posterior sample_stats posterior_predictive observed_data constant_data " {
		t.Errorf("groups %s", names)
	}
	for name, want := range map[string]string{"posterior/sigma": "[chain draw]", "posterior/tau": "[chain draw input]", "posterior/log_tau": "[chain draw input]",
		"posterior/lengthscale": "[chain draw input]", "posterior/lengthscale_std": "[chain draw input]", "posterior/noise_sd": "[chain draw]", "sample_stats/residual": "[chain draw]",
		"observed_data/y": "[obs_id]", "constant_data/x": "[obs_id input]", "constant_data/target_sd": "[]"} {
		if got := fmt.Sprint(dims[name]); got != want {
			t.Errorf("%s has dimensions %s, want %s", name, got, want)
		}
	}
	tau := quantities(src).Vars[1]
	if got, want := tau.Data.([]float64)[(1*19+4)*2+1], math.Exp(src.Record.Run.Chains[1].Draws[4][2]); tau.Name != "tau" || got != want || fmt.Sprint(tau.Shape) != "[3 19 2]" {
		t.Errorf("%s %v: %v, want %v", tau.Name, tau.Shape, got, want)
	}
	if got := rows(src).Data.([]int64); fmt.Sprint(got) != "[1 2 4 5]" {
		t.Errorf("rows %v: 0 and 3 are held out", got)
	}
	src.Stats, src.Data, src.Predictive = nil, nil, nil
	if g := Tree(src); len(g) != 1 {
		t.Errorf("%d groups of draws alone", len(g))
	}
	shared := quantities(source(t, false)).Vars[1]
	if shared.Name != "tau" || len(shared.Dims) != 2 {
		t.Errorf("%s over %v", shared.Name, shared.Dims)
	}
}

// Vectors over some of the inputs, those of a term, have a dimension of their own: what is along a
// dimension has its length.
func TestVectorsOfTerms(t *testing.T) {
	src := sourceOf(t, `data: {path: x.csv, target: "μ/strength"}
model: {kernel: "trend: rbf(cement) + all: matern32(ard) * rbf(cement) + turned: matern12(\"größe, mm 🙂\", cement, ard)"}`)
	want := map[string][]string{
		"trend.tau":                  {"trend.input", "cement"},
		"trend.lengthscale":          {"trend.input", "cement"},
		"all.matern32.tau":           {"input", "cement", "größe, mm 🙂"},
		"all.rbf.log_tau":            {"all.rbf.input", "cement"},
		"turned.tau":                 {"turned.input", "größe, mm 🙂", "cement"},
		"all.rbf.lengthscale_std":    {"all.rbf.input", "cement"},
		"turned.lengthscale":         {"turned.input", "größe, mm 🙂", "cement"},
		"all.matern32.lengthscale":   {"input", "cement", "größe, mm 🙂"},
		"trend.variance":             nil,
		"all.signal_sd":              nil,
		"all.log_variance":           nil,
		"lambda":                     nil,
		"no such quantity, a helper": nil,
	}
	for _, g := range Tree(src) {
		along := map[string]Array{}
		for _, c := range g.Coords {
			if _, twice := along[c.Name]; twice {
				t.Errorf("%s has two coordinates %s", g.Name, c.Name)
			}
			along[c.Name] = c
		}
		for _, v := range g.Vars {
			for i, dim := range v.Dims {
				if c, ok := along[dim]; ok && c.Shape[0] != v.Shape[i] {
					t.Errorf("%s: %d along %s, which has %d", v.Name, v.Shape[i], dim, c.Shape[0])
				}
			}
			w, ok := want[v.Name]
			if !ok {
				continue
			}
			delete(want, v.Name)
			var got []string
			if len(v.Dims) > 2 {
				got = append([]string{v.Dims[2]}, along[v.Dims[2]].Data.([]string)...)
			}
			if !slices.Equal(got, w) {
				t.Errorf("%s is over %q, want %q", v.Name, got, w)
			}
		}
	}
	if len(want) != 1 { // but what there is not
		t.Errorf("not there: %v", want)
	}
}

func TestParquet(t *testing.T) {
	src := source(t, true)
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := Write("parquet", path, src); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, _ := f.Stat()
	pf, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	q := report.Quantities(src.Record.Model, &src.Record.Data)
	var names []string
	for _, c := range pf.Schema().Fields() {
		names = append(names, c.Name())
	}
	if names[0]+names[1]+names[2] != "chainiterationdraw" || names[4] != "tau[cement]" || names[5] != "tau[2]" || len(names) != 3+len(q) || pf.NumRows() != 57 {
		t.Errorf("%d rows of %v", pf.NumRows(), names)
	}
	for _, a := range Provenance(src.Record) {
		if v, ok := pf.Lookup(a.Name); !ok || v != fmt.Sprint(a.Value) {
			t.Errorf("%s is %q, want %q", a.Name, v, a.Value)
		}
	}
	r := parquet.NewReader(pf)
	defer r.Close()
	draw := 0
	for c, ch := range src.Record.Run.Chains {
		for i, psi := range ch.Draws {
			draw++
			rows := make([]parquet.Row, 1)
			if n, err := r.ReadRows(rows); n != 1 {
				t.Fatal(err)
			}
			if row := rows[0]; row[0].Int32() != int32(c+1) || row[1].Int32() != int32(i+1) || row[2].Int32() != int32(draw) {
				t.Fatalf("row %d: %v", draw, row)
			}
			for k, x := range q {
				if got, want := math.Float64bits(rows[0][3+k].Double()), math.Float64bits(x.Of(psi)); got != want {
					t.Errorf("draw %d, %s: %x, want %x", draw, x.Name, got, want)
				}
			}
		}
	}
	// The reader of tables reads it too.
	table, err := dataset.ReadFile(path, nil, dataset.Select{Target: "noise_sd"}, dataset.DefaultLimits)
	if err != nil || len(table.Y) != 57 {
		t.Error(err)
	}
}

const npzReader = `
def read(path):
    z = np.load(path)
    meta, dims = json.loads(str(z["metadata"])), json.loads(str(z["dims"]))
    out = {name: {"attrs": attrs, "arrays": {}} for name, attrs in meta.items()}
    for key in z.files:
        if key not in ("metadata", "dims"):
            group, _, name = key.rpartition("/")
            out[group or "posterior"]["arrays"][name] = array(z[key], dims[group or "posterior"][name], {})
    return out
`

func TestNPZ(t *testing.T) {
	sources, paths := written(t, "npz", "x.npz")
	for i, saw := range python(t, "json", npzReader, paths...) {
		src := sources[i]
		for _, g := range Tree(src) { // NumPy knows no attributes of arrays
			for _, a := range g.arrays() {
				x := saw[g.Name].Arrays[a.Name]
				x.Attrs = jsonMap(attrMap(a.Attrs))
				saw[g.Name].Arrays[a.Name] = x
			}
			e := saw[g.Name]
			for _, c := range g.Coords {
				e.Coords = append(e.Coords, c.Name)
			}
			saw[g.Name] = e
		}
		same(t, src, saw)
	}
}

// written writes sources of both kinds of model in a format.
func written(t *testing.T, format string, names ...string) (sources []*Source, paths []string) {
	t.Helper()
	for _, name := range names {
		for _, ard := range []bool{true, false} {
			src := source(t, ard)
			path := filepath.Join(t.TempDir(), name)
			if err := Write(format, path, src); err != nil {
				t.Fatal(err)
			}
			if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
				t.Errorf("%v is left", left)
			}
			sources, paths = append(sources, src), append(paths, path)
		}
	}
	return sources, paths
}

// The .npy format by its description, without NumPy.
func TestNPY(t *testing.T) {
	for shape, want := range map[string]string{"": "()", "3": "(3,)", "12 34": "(12, 34,)"} {
		a := Array{Data: []float64{}}
		for _, f := range strings.Fields(shape) {
			n := 0
			fmt.Sscan(f, &n)
			a.Shape = append(a.Shape, n)
		}
		var b bytes.Buffer
		if err := WriteNPY(&b, &a); err != nil {
			t.Fatal(err)
		}
		h := b.String()
		n := int(binary.LittleEndian.Uint16(b.Bytes()[8:]))
		if !strings.HasPrefix(h, "\x93NUMPY\x01\x00") || len(h)%64 != 0 || n != len(h)-10 || h[len(h)-1] != '\n' ||
			!strings.HasPrefix(h[10:], "{'descr': '<f8', 'fortran_order': False, 'shape': "+want+", }") {
			t.Errorf("%q", h)
		}
	}
}

const zarrReader = `
import zarr, xarray as xr
def read(path):
    root = zarr.open_consolidated(path, mode="r")
    assert root.attrs["inference_library"] == "ulisse"
    out = {}
    for name, group in root.groups():
        with xr.open_zarr(path, group=name) as x:
            out[name] = xgroup(x.load())
        for key, a in group.arrays():   # as Zarr sees it, without xarray
            assert np.array_equal(a[...], x[key].values, equal_nan=a.dtype.kind == "f"), key
    return out
`

func TestZarr(t *testing.T) {
	sources, paths := written(t, "zarr", "x.zarr", "x.zarr.zip")
	long := source(t, false) // arrays of more than a chunk, whose last is padded, and of none
	x := make([]float64, 3*chunkElements-2)
	for i := range x {
		x[i] = float64(i)
	}
	long.Predictive = &Group{Vars: []Array{{Name: "long", Dims: []string{"row", "two"}, Shape: []int{len(x) / 2, 2}, Data: x},
		{Name: "none", Dims: []string{"row", "zero"}, Shape: []int{len(x) / 2, 0}, Data: []float64{}}}}
	path := filepath.Join(t.TempDir(), "x.zarr")
	if err := Write("zarr", path, long); err != nil {
		t.Fatal(err)
	}
	if chunks, _ := filepath.Glob(filepath.Join(path, "posterior_predictive", "long", "[0-9]*")); len(chunks) != 3 {
		t.Errorf("chunks %v", chunks)
	}
	sources, paths = append(sources, long), append(paths, path)
	for i, saw := range python(t, "zarr, xarray", zarrReader, paths...) {
		same(t, sources[i], saw)
	}
}

const netcdfReader = `
import netCDF4, h5py, xarray as xr
def read(path):
    out = {}
    with netCDF4.Dataset(path) as f, h5py.File(path) as h:
        assert f.getncattr("inference_library") == "ulisse"
        assert list(f.groups)[0] == "posterior", list(f.groups)
        for name, g in f.groups.items():
            with xr.open_dataset(path, group=name, engine="netcdf4") as x:
                out[name] = xgroup(x.load())
            for key, v in g.variables.items():   # as netCDF sees it, and as HDF5
                assert v.dimensions == x[key].dims, (key, v.dimensions)
                s = h[name][key]
                a = s.asstr()[...] if s.dtype.kind == "O" else s[...]
                assert np.array_equal(a, x[key].values, equal_nan=s.dtype.kind == "f"), key
                if key not in x.dims:
                    for i, dim in enumerate(x[key].dims):   # the scales are attached, both ways
                        assert s.dims[i][0].name == "/%s/%s" % (name, dim)
                        assert h5py.h5ds.is_attached(s.id, h[name][dim].id, i), (key, dim)
    return out
`

func TestNetCDF(t *testing.T) {
	sources, paths := written(t, "netcdf", "x.nc")
	odd := source(t, true) // a dimension without a coordinate, an empty array, an empty text, a long attribute
	odd.Record.Data.InputNames[0] = ""
	odd.Predictive = &Group{Attrs: []Attr{{"long", strings.Repeat("ü", 20000)}, {"empty", ""}, {"number", 0.1}, {"count", int64(-3)}}, Vars: []Array{
		{Name: "plain", Dims: []string{"row", "two"}, Shape: []int{3, 2}, Data: []float64{1, 2, 3, 4, 5, 6}},
		{Name: "none", Dims: []string{"row", "zero"}, Shape: []int{3, 0}, Data: []float64{}}}}
	path := filepath.Join(t.TempDir(), "odd.nc")
	if err := Write("netcdf", path, odd); err != nil {
		t.Fatal(err)
	}
	sources, paths = append(sources, odd), append(paths, path)
	for i, saw := range python(t, "netCDF4, h5py, xarray", netcdfReader, paths...) {
		same(t, sources[i], saw)
	}
	odd.Predictive.Attrs[0].Value = strings.Repeat("x", 70000)
	if err := Write("netcdf", path, odd); err == nil || !strings.Contains(err.Error(), "more than an HDF5 message holds") {
		t.Errorf("got %v", err)
	}
}

// A path that is taken by something else stays as it is, and so does one where
// writing fails.
func TestWrite(t *testing.T) {
	src := source(t, true)
	dir := t.TempDir()
	busy := filepath.Join(dir, "busy")
	os.Mkdir(busy, 0o700)
	os.WriteFile(filepath.Join(busy, "mine"), []byte("x"), 0o600)
	empty := filepath.Join(dir, "empty")
	os.Mkdir(empty, 0o700)
	for _, c := range []struct{ format, path, want string }{
		{"cmdstan", busy, "is not empty"}, {"zarr", busy, "is not empty"}, {"parquet", busy, "is not a file"},
		{"zarr", filepath.Join(busy, "mine"), "is not a folder"}, {"hdf6", empty, `no format "hdf6"`},
		{"cmdstan", empty, ""}, {"npz", filepath.Join(busy, "mine"), ""},
	} {
		err := Write(c.format, c.path, src)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.format, err, c.want)
		}
	}
	if files, _ := os.ReadDir(empty); len(files) != 3 || files[0].Name() != "tested-1.csv" {
		t.Errorf("%v", files)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	for path, want := range map[string]string{"a.csv": "csv", "-": "csv", "x": "csv", "A.NPZ": "npz", "a.zarr": "zarr", "a.zarr.zip": "zarr", "a.parquet": "parquet"} {
		if got := ByName(path); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// The checksum is lookup3's, by the value that its author gives.
func TestChecksum(t *testing.T) {
	text := []byte("Four score and seven years ago")
	if got := binary.LittleEndian.Uint32(checked(text)[len(text):]); got != 0x17770551 {
		t.Errorf("%x", got)
	}
	for n := range 26 { // also where the text ends with a block
		if b := checked(text[:n]); len(b) != n+4 {
			t.Errorf("%d bytes of %d", len(b), n)
		}
	}
}
