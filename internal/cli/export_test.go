package cli

import (
	"archive/zip"
	"bytes"
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a job and a folder hold is the same, in every format.
func TestDrawsOfJobAndFolder(t *testing.T) {
	cluster(t, "w-alpha")
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", tinySpec)
	folder := filepath.Join(dir, "tiny")
	good(t, "run", spec, "--out", folder, "-q")
	good(t, "submit", spec, "--wait", "-q")
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, format := range []string{"csv", "parquet", "npz", "zarr.zip"} {
		good(t, "draws", folder, "--out", at("a."+format))
		good(t, "draws", "tiny", "--out", at("b."+format))
	}
	a, _ := os.ReadFile(at("a.csv"))
	b, _ := os.ReadFile(at("b.csv"))
	if !bytes.Equal(a, b) || !strings.HasPrefix(string(a), "chain__,draw__,sigma,") {
		t.Errorf("of the folder\n%s\nof the job\n%s", a, b)
	}
	for _, format := range []string{"npz", "zarr.zip"} {
		a, b := members(t, at("a."+format)), members(t, at("b."+format))
		compared := 0
		for name, text := range a {
			if strings.Contains(name, "sample_stats") || strings.HasPrefix(filepath.Base(name), ".z") || name == "metadata.npy" {
				continue // times; where and when
			}
			if compared++; !bytes.Equal(text, b[name]) {
				t.Errorf("%s: %s of the job is not that of the folder", format, name)
			}
		}
		if compared < 12 {
			t.Errorf("%s: compared %d arrays", format, compared)
		}
	}
	good(t, "draws", folder, "--out", at("pa.npz"), "--predictive", "2")
	good(t, "draws", "tiny", "--out", at("pb.npz"), "--predictive", "2")
	pa, pb := members(t, at("pa.npz"))["posterior_predictive/y.npy"], members(t, at("pb.npz"))["posterior_predictive/y.npy"]
	if len(pa) != 128+8*2*2*40 || !bytes.Equal(pa, pb) || !bytes.Contains(pa, []byte("(2, 2, 40,)")) {
		t.Errorf("predicted %d bytes of a folder, %d of the job: %.128q", len(pa), len(pb), pa)
	}
	good(t, "draws", folder, "--out", at("la.npz"), "--log-lik", "2", "--lp")
	good(t, "draws", "tiny", "--out", at("lb.npz"), "--log-lik", "2", "--lp")
	for _, array := range []string{"log_likelihood/y.npy", "sample_stats/lp.npy"} {
		if a, b := members(t, at("la.npz"))[array], members(t, at("lb.npz"))[array]; len(a) < 128 || !bytes.Equal(a, b) {
			t.Errorf("%s: %d bytes of a folder, %d of the job", array, len(a), len(b))
		}
	}
	if out := good(t, "draws", folder, "--lp"); !strings.HasPrefix(out, "chain__,draw__,lp__,sigma,") {
		t.Errorf("got %.100s", out)
	}
	files := at("chains")
	good(t, "draws", folder, "--format", "cmdstan", "--out", files)
	text, err := os.ReadFile(filepath.Join(files, "tiny-2.csv"))
	if err != nil {
		t.Fatal(err)
	}
	r := csv.NewReader(bytes.NewReader(text))
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil || len(rows) != 21 || strings.Join(rows[0][:7], " ") != "probes__ solver_iterations__ residual__ unconverged__ products__ seconds__ sigma" {
		t.Fatal(err, rows)
	}
	for _, row := range rows[1:] {
		if row[0] == "nan" || row[1] == "nan" || row[1] == "0" {
			t.Errorf("statistics %v", row)
		}
	}
	if a, b := good(t, "draws", folder, "--chain", "2"), good(t, "draws", "tiny", "--chain", "2"); strings.Count(a, "\n") != strings.Count(b, "\n") {
		t.Errorf("got\n%s\nand\n%s", a, b)
	}
	if a, b := good(t, "summary", folder), good(t, "summary", "tiny"); !strings.HasPrefix(a, "tiny: converged\n") || strings.Split(a, "\n")[3] != strings.Split(b, "\n")[3] || !strings.Contains(a, "MAD") {
		t.Errorf("got\n%s\nand\n%s", a, b)
	}
	if a := asJSON[object](t, "summary", folder); a["draws_sha256"] != summaryHash(t, folder) {
		t.Error(a)
	}
	if out := good(t, "summary", folder, "--csv"); !strings.HasPrefix(out, "name,Mean,MCSE,StdDev,MAD,5%,50%,95%,ESS_bulk,ESS_tail,ESS_bulk/s,R_hat\nsigma,") {
		t.Error(out)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"draws", folder, "--format", "hdf6", "--out", at("x")}, `there is no format "hdf6"`},
		{[]string{"draws", folder, "--format", "npz"}, "give a path with --out"},
		{[]string{"draws", folder, "--predictive", "2"}, "a file of format csv holds draws alone"},
		{[]string{"draws", folder, "--log-lik", "2"}, "--log-lik: a file of format csv holds draws alone"},
		{[]string{"draws", folder, "--predictive", "-2", "--out", at("x.npz")}, "give a positive number"},
		{[]string{"draws", folder, "--format", "npz", "--out", at("x"), "--chain", "1"}, "--chain is for --format csv only"},
		{[]string{"draws", folder, "--format", "cmdstan", "--out", files}, "is not empty"},
		{[]string{"draws", "a-job", "--format", "xlsx", "--out", at("x")}, "xlsx"}, // before a cluster is asked
		{[]string{"draws", folder, "--chain", "3"}, "there are chains 1 to 2"},
		{[]string{"draws", dir}, "there are no results in " + dir},
		{[]string{"summary", folder, "--csv", "--json"}, "not both"},
	} {
		if code, _, stderr := ulisse(t, "", c.args...); code != ExitBadInput || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit %d, %s", c.args, code, stderr)
		}
	}

	// Data that are gone, or others, are left out with a word.
	changed := strings.ReplaceAll(unsealed(must(os.ReadFile(filepath.Join(folder, "result.json")))), "seed: 3", "seed: 4")
	write(t, folder, "result.json", changed)
	code, _, stderr := ulisse(t, "", "draws", folder, "--out", at("c.npz"))
	if code != 0 || !strings.Contains(stderr, "the data are left out") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if code, _, stderr := ulisse(t, "", "draws", folder, "--out", at("d.npz"), "--predictive", "2"); code != ExitBadInput || !strings.Contains(stderr, "no data to compute it from") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if m := members(t, at("c.npz")); m["observed_data/y.npy"] != nil || m["sigma.npy"] == nil {
		t.Error("other data were written")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// members returns the files in a zip file.
func members(t *testing.T, path string) map[string][]byte {
	t.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	out := map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := b.ReadFrom(r); err != nil {
			t.Fatal(err)
		}
		r.Close()
		out[f.Name] = b.Bytes()
	}
	return out
}

// The page of a job tells who computed it, that of a folder where.
func TestReport(t *testing.T) {
	cluster(t, "w-alpha")
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", tinySpec)
	folder := filepath.Join(dir, "run")
	good(t, "run", spec, "--out", folder, "-q")
	good(t, "submit", spec, "--wait", "-q")
	host, _ := os.Hostname()
	page := filepath.Join(dir, "page.html")
	if out := good(t, "report", "tiny", "-o", page); out != page+"\n" {
		t.Error(out)
	}
	ofJob := string(must(os.ReadFile(page)))
	ofFolder := good(t, "report", folder, "-o", "-")
	written := string(must(os.ReadFile(filepath.Join(folder, "report.html"))))
	for what, text := range map[string]string{"w-alpha": ofJob, host: ofFolder, "Instruction set</th><td>" + instructionSet(): written} {
		if !strings.Contains(text, what) || !strings.Contains(text, "<h1>tiny</h1>") || strings.Count(text, "<svg") < 3 || !strings.Contains(text, summaryHash(t, folder)) {
			t.Errorf("%s is not on the page, or it is not whole:\n%.3000s", what, text)
		}
	}
	if strings.Contains(ofFolder, "Leave-one-out") {
		t.Error("rows were left out that nobody asked for")
	}
	good(t, "report", folder, "-o", page, "--loo", "--quiet")
	if text := string(must(os.ReadFile(page))); !strings.Contains(text, `<h2 id="loo">`) || !strings.Contains(text, "Each of 40 rows is predicted from all other rows") || strings.Count(text, "<svg") != strings.Count(ofFolder, "<svg")+1 {
		t.Errorf("no rows were left out:\n%.3000s", text)
	}
	good(t, "report", folder, "-o", page, "--check", "--quiet")
	if text := string(must(os.ReadFile(page))); !strings.Contains(text, `<h2 id="check">`) || !strings.Contains(text, "40 data sets that the fitted model makes of all rows") || strings.Count(text, "<svg") != strings.Count(ofFolder, "<svg")+1 {
		t.Errorf("nothing was checked:\n%.3000s", text)
	}
	good(t, "report", folder, "-o", page, "--effects", "--quiet", "--draws", "2")
	if text := string(must(os.ReadFile(page))); !strings.Contains(text, `<h2 id="effects">`) || !strings.Contains(text, "averaged over the rows") || strings.Count(text, "<svg") <= strings.Count(ofFolder, "<svg") {
		t.Errorf("no effects:\n%.3000s", text)
	}
	if code, _, stderr := ulisse(t, "", "report", dir); code != ExitBadInput || !strings.Contains(stderr, "there are no results") {
		t.Error(code, stderr)
	}
}

// unsealed returns a sealed object without its checksum, so that it can be changed.
func unsealed(text []byte) string {
	return string(text[:bytes.LastIndex(text, []byte(`,"checksum":`))]) + "}\n"
}
