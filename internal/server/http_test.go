package server

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ulisse-gp/ulisse/internal/version"
)

// A server lingers for half a second on a connection whose request it refused
// before its end.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// web is the HTTP port of a coordinator that has a worker.
type web struct {
	t   *testing.T
	url string
	dir string
}

// serve runs a coordinator and a worker in this process until the test ends.
func serve(t *testing.T) *web {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	ready := make(chan [2]string, 1)
	c := Coordinator{ID: "c1", Dir: filepath.Join(dir, "c1"), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", HTTP: "127.0.0.1:0", BootstrapExpect: 1,
		Logger: log, Ready: func(grpc, _, http string) { ready <- [2]string{grpc, http} }}
	run := func(name string, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		http.DefaultClient.CloseIdleConnections()
	})
	run("coordinator", c.Run)
	var at [2]string
	select {
	case at = <-ready:
	case <-time.After(time.Minute):
		t.Fatal("the coordinator is not ready")
	}
	w := Worker{ID: "w1", Dir: filepath.Join(dir, "w1"), Coordinators: []string{at[0]}, Listen: "127.0.0.1:0", Cores: 1, DrainTime: 2 * time.Second, Logger: log}
	run("worker", w.Run)
	s := &web{t: t, url: "http://" + at[1], dir: dir}
	s.until("a leader and a worker", func() bool {
		if code, _ := s.do("GET", "/readyz", nil); code != http.StatusOK {
			return false
		}
		_, list := s.do("GET", "/v1/workers", nil)
		workers, _ := list["workers"].([]any)
		return len(workers) == 1
	})
	return s
}

// do makes a request and returns the status and the answer.
func (s *web) do(method, path string, body io.Reader) (int, map[string]any) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		s.t.Fatalf("%s %s: %d %q is not an object: %v", method, path, resp.StatusCode, text, err)
	}
	return resp.StatusCode, out
}

// want is do for a request that is to succeed.
func (s *web) want(method, path string, body any) map[string]any {
	s.t.Helper()
	var r io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		r = bytes.NewReader(text)
	}
	code, out := s.do(method, path, r)
	if code != http.StatusOK {
		s.t.Fatalf("%s %s: %d %v", method, path, code, out)
	}
	return out
}

func (s *web) until(what string, f func() bool) {
	s.t.Helper()
	for end := time.Now().Add(3 * time.Minute); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%s: not within three minutes", what)
		}
	}
}

const specText = `
name: table
data: {path: table.csv, target: y}
sampler: {method: fisher, chains: 2, warmup: 20, draws: 40, checkpoint: 10}
solver: {tolerance: 1e-6}
stop: {rhat: 1.05, ess: 1e9, max_draws: %d, max_time: 10m}
`

// table returns a small CSV file.
func table() []byte {
	var b bytes.Buffer
	r := rand.New(rand.NewPCG(1, 2))
	fmt.Fprintln(&b, "x1,x2,y")
	for range 120 {
		x1, x2 := r.NormFloat64(), r.NormFloat64()
		fmt.Fprintf(&b, "%g,%g,%g\n", x1, x2, x1*x2+0.3*r.NormFloat64())
	}
	return b.Bytes()
}

// A user with nothing but HTTP uploads a table, submits a job, follows it, reads
// its summary and draws, and cancels another.
func TestJobOverHTTP(t *testing.T) {
	s := serve(t)
	data := table()
	code, blob := s.do("PUT", "/v1/data", bytes.NewReader(data))
	sum := sha256.Sum256(data)
	sha := hex.EncodeToString(sum[:])
	if code != http.StatusOK || blob["sha256"] != sha || blob["size"] != float64(len(data)) {
		t.Fatalf("upload: %d %v", code, blob)
	}
	if stat := s.want("GET", "/v1/data/"+sha, nil); stat["complete"] != true {
		t.Errorf("the data set is %v", stat)
	}

	submit := map[string]any{"spec": fmt.Sprintf(specText, 40), "data": sha, "client_id": "once"}
	job := s.want("POST", "/v1/jobs", submit)
	id, _ := job["id"].(string)
	if again := s.want("POST", "/v1/jobs", submit); id == "" || again["id"] != id {
		t.Errorf("submitted twice: %v and %v", id, again["id"])
	}

	resp, err := http.Get(s.url + "/v1/jobs/" + id + ":watch")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var last struct{ Result map[string]any }
	messages := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); messages++ {
		if err := json.Unmarshal(lines.Bytes(), &last); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
	}
	if messages < 2 || last.Result["state"] != "JOB_STATE_UNCONVERGED" || last.Result["stop_reason"] != "max_draws" {
		t.Errorf("after %d messages: %v", messages, last.Result)
	}
	log, err := http.Get(s.url + "/v1/jobs/" + id + "/logs") // at once: draws do not come before their lines
	if err != nil {
		t.Fatal(err)
	}
	defer log.Body.Close()
	text, err := io.ReadAll(log.Body)
	if n := bytes.Count(text, []byte(`\"gradient\"`)); err != nil || n < 2*(20+40) {
		t.Errorf("%d lines of gradients in the log of 120 iterations: %v", n, err)
	}
	got := s.want("GET", "/v1/jobs/"+id, nil)
	if got["draws_sha256"] == "" || got["draws_sha256"] != last.Result["draws_sha256"] {
		t.Errorf("the hash of the draws is %v, watched %v", got["draws_sha256"], last.Result["draws_sha256"])
	}
	list := s.want("GET", "/v1/jobs?name=tab&states=JOB_STATE_UNCONVERGED", nil)
	if jobs := list["jobs"].([]any); len(jobs) != 1 || jobs[0].(map[string]any)["id"] != id {
		t.Errorf("listed: %v", jobs)
	}
	var summary map[string]any
	if err := json.Unmarshal([]byte(s.want("GET", "/v1/jobs/"+id+"/summary", nil)["json"].(string)), &summary); err != nil {
		t.Fatal(err)
	}
	if summary["draws_sha256"] != got["draws_sha256"] {
		t.Errorf("the summary tells of draws %v, the job of %v", summary["draws_sha256"], got["draws_sha256"])
	}

	s.exported(id, got["draws_sha256"].(string))
	long := s.want("POST", "/v1/jobs", map[string]any{"spec": fmt.Sprintf(specText, 1_000_000), "data": sha})
	path := "/v1/jobs/" + long["id"].(string)
	s.until("the long job samples", func() bool { return s.want("GET", path, nil)["state"] == "JOB_STATE_SAMPLING" })
	if j := s.want("POST", path+":cancel", nil); j["state"] != "JOB_STATE_CANCELLED" {
		t.Errorf("cancelled: %v", j["state"])
	}
}

// exported checks the exports of a job of 2 chains and 40 draws against its draws in
// JSON, which hash to draws.
func (s *web) exported(id, draws string) {
	s.t.Helper()
	get := func(path string) (*http.Response, []byte) {
		resp, err := http.Get(s.url + "/v1/jobs/" + id + path)
		if err != nil {
			s.t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			s.t.Fatal(err)
		}
		return resp, body
	}
	resp, body := get("/export?format=npz")
	z, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	if err != nil || !strings.Contains(resp.Header.Get("Content-Disposition"), "table.npz") {
		s.t.Fatalf("%v, %v", err, resp.Header)
	}
	sizes := map[string]uint64{}
	for _, f := range z.File {
		sizes[f.Name] = f.UncompressedSize64
	}
	const header, element = 128, 8 // bytes
	if n := sizes["log_lambda.npy"]; n != header+2*40*element || sizes["sample_stats/probes.npy"] != n {
		s.t.Errorf("the sizes are %v", sizes)
	}
	if !bytes.Contains(bytes.ReplaceAll(body, []byte{0, 0, 0}, nil), []byte(draws)) { // texts are UCS-4
		s.t.Errorf("the hash %s of the draws is not in the file", draws)
	}

	_, body = get("/export?format=csv")
	table, err := csv.NewReader(bytes.NewReader(body)).ReadAll()
	if err != nil || len(table) != 1+2*40 {
		s.t.Fatalf("%d lines: %v", len(table), err)
	}
	_, body = get("/draws")
	last := -1.0
	for line := range bytes.Lines(body) {
		var b struct {
			Result struct {
				Chain, First, Params int
				Psi                  []byte
			}
		}
		if err := json.Unmarshal(line, &b); err != nil {
			s.t.Fatal(err)
		}
		if b.Result.Chain == 2 {
			last = math.Float64frombits(binary.LittleEndian.Uint64(b.Result.Psi[len(b.Result.Psi)-8:]))
		}
	}
	at := slices.Index(table[0], "log_lambda")
	if at < 0 || table[80][at] != strconv.FormatFloat(last, 'g', -1, 64) {
		s.t.Errorf("the last draw is %v under %v, want log_lambda %v", table[80], table[0], last)
	}
	for format, want := range map[string]string{"cmdstan": "folder", "hdf6": "hdf6"} {
		if code, out := s.do("GET", "/v1/jobs/"+id+"/export?format="+format, nil); code != http.StatusBadRequest || !strings.Contains(out["message"].(string), want) {
			s.t.Errorf("%s: %d %v", format, code, out)
		}
	}
	if code, _ := s.do("GET", "/v1/jobs/nobody/export", nil); code != http.StatusNotFound {
		s.t.Errorf("of no job: %d", code)
	}
}

// What is refused is refused with a status, a sentence, and the field at fault.
func TestErrorsOverHTTP(t *testing.T) {
	s := serve(t)
	for name, c := range map[string]struct {
		method, path, body string
		code               int
		field              string
	}{
		"a field of the specification": {"POST", "/v1/jobs", `{"spec": "name: a\ndata: {synthetic: {n: 100, d: 2}}\nsampler: {chains: -1}"}`, 400, "spec.sampler.chains"},
		"data that are not there":      {"POST", "/v1/jobs", `{"spec": "name: a\ndata: {path: x.csv, target: y}", "data": "` + strings.Repeat("0", 64) + `"}`, 400, "data"},
		"a priority":                   {"POST", "/v1/jobs", `{"spec": "name: a\ndata: {path: x.csv, target: y}", "priority": 5000}`, 400, "priority"},
		"no JSON":                      {"POST", "/v1/jobs", `{"spec"`, 400, ""},
		"too large":                    {"POST", "/v1/jobs", `{"spec": "` + strings.Repeat("x", maxBody) + `"}`, 400, ""},
		"no such job":                  {"GET", "/v1/jobs/nobody", "", 404, ""},
		"no such path":                 {"GET", "/v1/nothing", "", 404, ""},
		"an address":                   {"GET", "/v1/data/abc", "", 400, "sha256"},
		"an empty upload":              {"PUT", "/v1/data", "", 400, "body"},
	} {
		code, out := s.do(c.method, c.path, strings.NewReader(c.body))
		if code != c.code || out["message"] == "" {
			t.Errorf("%s: %d %v, want %d", name, code, out, c.code)
		}
		if c.field == "" {
			continue
		}
		text, _ := json.Marshal(out["details"])
		var details []struct {
			Violations []struct{ Field, Description string } `json:"field_violations"`
		}
		if err := json.Unmarshal(text, &details); err != nil || len(details) != 1 || len(details[0].Violations) != 1 ||
			details[0].Violations[0].Field != c.field || details[0].Violations[0].Description == "" {
			t.Errorf("%s: the details are %s, want a violation of %s", name, text, c.field)
		}
	}
	left, err := os.ReadDir(filepath.Join(s.dir, "c1", "uploads"))
	if err != nil || len(left) > 0 {
		t.Errorf("left of uploads: %v, %v", left, err)
	}
	resp, err := http.Get(s.url + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var api struct {
		Info  struct{ Title, Version string }
		Paths map[string]any
	}
	if err := json.NewDecoder(resp.Body).Decode(&api); err != nil || api.Paths["/v1/jobs"] == nil || api.Info.Title != "ulisse" || api.Info.Version != version.Version {
		t.Errorf("the description of the API: %+v, %v", api.Info, err)
	}
	for query, want := range map[string]int{"states=sampling&states=JOB_STATE_QUEUED": http.StatusOK, "states=resting": http.StatusBadRequest} {
		if code, out := s.do("GET", "/v1/jobs?"+query, nil); code != want {
			t.Errorf("%s: %d, %v", query, code, out)
		}
	}
}

// An upload that is too large, or cut off, leaves nothing.
func TestUploadLimits(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, spoolPrefix+"killed"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	var refused error
	u, err := newUploads(dir, nil, func(w http.ResponseWriter, _ *http.Request, err error) { refused = err })
	if err != nil {
		t.Fatal(err)
	}
	u.most = 1000
	for want, body := range map[string]io.Reader{
		"larger than 1000 bytes": bytes.NewReader(make([]byte, 1001)),
		"ended after 10 bytes":   io.MultiReader(strings.NewReader("0123456789"), &broken{}),
	} {
		u.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("PUT", "/v1/data", body))
		if refused == nil || !strings.Contains(refused.Error(), want) {
			t.Errorf("refused with %v, want %q", refused, want)
		}
	}
	for i := range maxUploads {
		if _, err := u.slots.Take(fmt.Sprint(i / ownUploads)); err != nil {
			t.Fatal(err)
		}
	}
	u.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("PUT", "/v1/data", strings.NewReader("x")))
	if !strings.Contains(refused.Error(), "uploads are under way") {
		t.Errorf("refused with %v", refused)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// broken is a body whose sender is gone.
type broken struct{}

func (*broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
