package dashboard

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a dashboard of a fake cluster, and a browser without scripts.
type site struct {
	*fake
	t      *testing.T
	d      *Dashboard
	url    string
	client *http.Client
}

func newSite(t *testing.T, c Config) *site {
	t.Helper()
	f, conn := start(t)
	c.Conn, c.Every = conn, 10*time.Millisecond
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(d)
	jar, _ := cookiejar.New(nil)
	s := &site{fake: f, t: t, d: d, url: srv.URL, client: &http.Client{Jar: jar, Transport: &http.Transport{}}}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		srv.CloseClientConnections()
		srv.Close()
		d.Close()
	})
	f.add("j1", "first", pb.JobState_JOB_STATE_SAMPLING, 2, 200)
	return s
}

// get returns a page.
func (s *site) get(path string) (int, string) {
	s.t.Helper()
	resp, err := s.client.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// post sends a form.
func (s *site) post(path string, header http.Header, form url.Values) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest("POST", s.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for k, v := range header {
		r.Header[k] = v
	}
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// want checks what is on a page.
func (s *site) want(path string, code int, words ...string) string {
	s.t.Helper()
	got, text := s.get(path)
	if got != code {
		s.t.Errorf("%s: %d, not %d", path, got, code)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			s.t.Errorf("%s: %q is not on the page", path, w)
		}
	}
	return text
}

func TestPages(t *testing.T) {
	s := newSite(t, Config{Node: "c1", Viewer: func(*http.Request) *pb.Identity { return &pb.Identity{User: "ada@lab"} }})
	s.add("j2", "second", pb.JobState_JOB_STATE_CONVERGED, 2, 400)
	s.want("/", 200, "<h1>Jobs</h1>", "first", "second", "sampling", "converged", "1.012", "321", "19260", "1 min 30 s", "200/400", "ada@lab", "coordinator c1", "/static/live.js")
	if text := s.want("/jobs?q=sec", 200, "second"); strings.Contains(text, ">first<") {
		t.Error("a job that was not searched for is listed")
	}
	if text := s.want("/jobs?state=active", 200, ">first<"); strings.Contains(text, ">second<") {
		t.Error("a job that has ended is listed as active")
	}
	s.want("/jobs?q=nothing", 200, "No job is like that")
	s.want("/jobs/j1", 200, "<h1>first", "1,030 rows, 8 inputs, target y", "λ<sub>min</sub>(Q)", "/jobs/j1/plots/trace.svg?from=0", "Pause…", "Cancel…", "R-hat of sigma is 1.2: run longer",
		"chain 1 on &lt;b&gt;w1&lt;/b&gt;", "kernel: rbf", "w1")
	if text := s.want("/jobs/j2", 200, "Extend…"); strings.Contains(text, "Pause…") {
		t.Error("a job that has ended can be paused")
	}
	s.change("j1", func(j *pb.Job) {
		j.Health = &pb.Health{Status: pb.HealthStatus_HEALTH_STATUS_STALLED, Message: "nothing has come from chain 2 for 70 s"}
	}, 0)
	s.want("/jobs", 200, ">stalled<")
	s.want("/jobs/j1", 200, "<b>stalled</b>: nothing has come from chain 2 for 70 s")
	s.want("/jobs/none", 404, "There is no job")
	s.want("/nothing", 404, "There is no such page")
	s.want("/workers", 200, "w1", "10.0.0.1:7010", "at work", "3 Gpairs/s", "100 %", "3.0 / 8 cores", "lost", "chain 1", "/workers/plots/presence.svg")
	s.want("/cluster", 200, "c2", "2 of 3 voters answer: the loss of one more stops decisions.", "silent", "leader", "0.2 s ago", "never")
	s.want("/jobs/j1/logs", 200, "There are no lines")
	for _, path := range []string{"/static/live.js", "/static/style.css", "/static/icon.svg"} {
		s.want(path, 200)
	}
}

// Whatever a user calls a job, it is words on a page.
func TestNamesAreEscaped(t *testing.T) {
	s := newSite(t, Config{})
	evil := `<script>alert(1)</script>"><img src=x onerror=alert(1)>`
	s.add("j3", evil, pb.JobState_JOB_STATE_FAILED, 1, 0)
	s.change("j3", func(j *pb.Job) { j.Message, j.Owner, j.Spec = evil, evil, "name: |\n  "+evil }, 0)
	s.lines = []*pb.LogLine{{Time: timestamppb.Now(), Text: evil, Worker: evil}}
	for _, path := range []string{"/jobs", "/jobs?q=" + url.QueryEscape(evil), "/jobs/j3", "/jobs/j3/logs", "/jobs/j3/resume", "/jobs/" + url.PathEscape(evil)} {
		_, text := s.get(path)
		if strings.Contains(text, "<script>alert") || strings.Contains(text, "<img src=x") {
			t.Errorf("%s: the name is markup", path)
		}
	}
	for _, m := range s.listen("/events/jobs/j3", 3) {
		if strings.Contains(m.HTML, "<script>") || strings.Contains(m.HTML, "<img src=x") {
			t.Errorf("the stream sends markup: %s", m.HTML)
		}
	}
}

func TestHeaders(t *testing.T) {
	s := newSite(t, Config{})
	resp, err := s.client.Get(s.url + "/jobs")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	csp := resp.Header.Get("Content-Security-Policy")
	if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
		t.Errorf("the policy is %q", csp)
	}
	_, text := s.get("/jobs/j1")
	if m := regexp.MustCompile(`(?i)<script>|<style|\sstyle="|\son[a-z]+="|https?://`).FindString(text); m != "" {
		t.Errorf("the page has %q, which the policy forbids", m)
	}
}

func TestPlots(t *testing.T) {
	s := newSite(t, Config{})
	s.get("/jobs/j1")
	for _, p := range jobPlots {
		for _, q := range []string{"?from=0", "?from=0&narrow=1"} {
			_, text := s.get("/jobs/j1/plots/" + p.name + ".svg" + q)
			if err := xml.Unmarshal([]byte(text), new(struct{ XMLName xml.Name })); err != nil || !strings.Contains(text, "<desc>") {
				t.Errorf("%s: %v", p.name, err)
			}
		}
	}
	s.want("/jobs/j1/plots/trace.svg", 200, "2 chains of 200 draws", "log sigma")
	s.want("/jobs/j1/plots/nothing.svg", 404)
	s.want("/jobs/none/plots/trace.svg", 404)
	s.want("/workers/plots/presence.svg", 200, "w2", "lost")
	s.want("/workers/plots/work.svg", 200, "pairs / s")
	s.want("/workers/plots/other.svg", 404)

}

// A plot is sent again when it has changed.
func TestVersionsOfPlots(t *testing.T) {
	s := newSite(t, Config{})
	r, _ := http.NewRequest("GET", s.url+"/jobs/j1/plots/trace.svg", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	resp, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, z)
	resp.Body.Close()
	r.Header.Set("If-None-Match", resp.Header.Get("ETag"))
	if resp, err = s.client.Do(r); err != nil || resp.StatusCode != http.StatusNotModified {
		t.Fatalf("the same again: %v, %v", resp.StatusCode, err)
	}
	resp.Body.Close()
	s.change("j1", func(*pb.Job) {}, 50)
	s.until("a plot of more draws", func() bool {
		_, text := s.get("/jobs/j1/plots/trace.svg")
		return strings.Contains(text, "2 chains of 250 draws")
	})
}

func (s *site) until(what string, f func() bool) {
	s.t.Helper()
	for end := time.Now().Add(3 * time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%s: not in time", what)
		}
	}
}

// listen returns the first messages of a stream.
func (s *site) listen(path string, n int) []message {
	s.t.Helper()
	var out []message
	s.stream(path, func(m message) bool { out = append(out, m); return len(out) == n })
	return out
}

// stream calls f with the messages of a stream until it returns true.
func (s *site) stream(path string, f func(message) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("%s: %d", path, resp.StatusCode)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var m message
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			s.t.Fatalf("%q: %v", text, err)
		}
		if f(m) {
			return
		}
	}
	s.t.Fatalf("%s: the stream ended: %v", path, lines.Err())
}

func TestStreams(t *testing.T) {
	s := newSite(t, Config{})
	step := 0
	s.stream("/events/jobs/j1", func(m message) bool {
		switch {
		case step == 0 && m.Plots != "" && strings.HasPrefix(m.Plots, "200-"): // what is there comes at once
			step++
			s.change("j1", func(*pb.Job) {}, 100)
		case step == 1 && strings.HasPrefix(m.Plots, "300-"):
			step++
			s.change("j1", func(j *pb.Job) { j.State, j.Message = pb.JobState_JOB_STATE_FAILED, "the disk is full" }, 0)
		case step == 2 && m.ID == "state" && strings.Contains(m.HTML, "the disk is full"):
			step++
			s.change("j1", func(j *pb.Job) { j.State = pb.JobState_JOB_STATE_CONVERGED }, 0)
			return true
		}
		return false
	})
	jobs := false
	s.stream("/events/jobs?q=first", func(m message) bool {
		jobs = jobs || m.ID == "jobs"
		if m.ID == "jobs" && strings.Contains(m.HTML, "another") {
			return true
		}
		if m.ID == "jobs" && !strings.Contains(m.HTML, "another") {
			s.add("j9", "another first", pb.JobState_JOB_STATE_QUEUED, 2, 0)
		}
		return false
	})
	if m := s.listen("/events/workers", 1)[0]; m.ID != "workers" || !strings.Contains(m.HTML, "w1") {
		t.Errorf("%+v", m)
	}
	if m := s.listen("/events/cluster", 1)[0]; m.ID != "cluster" || !strings.Contains(m.HTML, "c2") {
		t.Errorf("%+v", m)
	}
	if code, _ := s.get("/events/jobs/none"); code != 404 {
		t.Errorf("a stream of no job: %d", code)
	}
}

// Parameters to choose from come to a page that was opened before anybody knew them.
func TestChoicesComeByThemselves(t *testing.T) {
	s := newSite(t, Config{})
	s.add("j2", "new", pb.JobState_JOB_STATE_QUEUED, 2, 0)
	var known []string
	s.change("j2", func(j *pb.Job) { known, j.Progress.Parameters = j.Progress.Parameters, nil }, 0)
	if _, text := s.get("/jobs/j2"); strings.Contains(text, `name="param"`) {
		t.Fatal("parameters that nobody knows")
	}
	s.stream("/events/jobs/j2", func(m message) bool {
		if m.ID == "choices" && m.Key == "" {
			s.change("j2", func(j *pb.Job) { j.Progress.Parameters = known }, 0)
		}
		return m.ID == "choices" && m.Key != "" && strings.Contains(m.HTML, `name="param" value="0" checked`)
	})
}

// A job that was extended after its end goes on, in a feed that had ended.
func TestExtendedAfterItsEnd(t *testing.T) {
	s := newSite(t, Config{})
	s.change("j1", func(j *pb.Job) { j.State = pb.JobState_JOB_STATE_CONVERGED }, 0)
	s.want("/jobs/j1/plots/trace.svg", 200, "200 draws")
	s.change("j1", func(j *pb.Job) { j.State = pb.JobState_JOB_STATE_SAMPLING }, 77)
	s.until("more draws", func() bool {
		_, text := s.get("/jobs/j1/plots/trace.svg")
		return strings.Contains(text, "277 draws")
	})
}

// When nobody looks any more nothing is left running.
func TestFeedsEnd(t *testing.T) {
	s := newSite(t, Config{})
	for range 3 {
		s.listen("/events/jobs/j1", 2)
	}
	f := s.d.feeds.byID["j1"]
	s.until("no user", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.users == 0 })
	if n := len(s.d.streams); n != 0 {
		t.Errorf("%d streams are left", n)
	}
	s.fake.mu.Lock()
	watching := s.watching
	s.fake.mu.Unlock()
	if watching != 1 {
		t.Errorf("%d watches for one job", watching)
	}
	s.d.feeds.mu.Lock()
	s.d.feeds.sweep(time.Now().Add(2 * feedIdle))
	s.d.feeds.mu.Unlock()
	s.until("no watch", func() bool { s.fake.mu.Lock(); defer s.fake.mu.Unlock(); return s.watching == 0 })
	for i := range maxFeeds + 5 { // those that were left first make room
		s.add(fmt.Sprintf("k%d", i), "many", pb.JobState_JOB_STATE_QUEUED, 1, 0)
		s.get(fmt.Sprintf("/jobs/k%d", i))
	}
	if n := len(s.d.feeds.byID); n > maxFeeds {
		t.Errorf("%d feeds", n)
	}
}

var tokenForm = regexp.MustCompile(`name="token" value="([^"]+)"`)

func TestActions(t *testing.T) {
	s := newSite(t, Config{})
	page := s.want("/jobs/j1/pause", 200, "Pause first?", "Nothing is lost")
	token := tokenForm.FindStringSubmatch(page)[1]
	form := url.Values{"token": {token}}
	if code, text := s.post("/jobs/j1/pause", nil, form); code != 200 || !strings.Contains(text, "Pause: done.") || !strings.Contains(text, "paused") {
		t.Errorf("paused: %d", code)
	}
	form.Set("draws", "250")
	if code, _ := s.post("/jobs/j1/extend", nil, form); code != 200 {
		t.Errorf("extended: %d", code)
	}
	for _, bad := range []string{"", "-1", "many", "999999999999"} {
		form.Set("draws", bad)
		if code, text := s.post("/jobs/j1/extend", nil, form); code != 400 || !strings.Contains(text, "whole number of draws") {
			t.Errorf("%q draws: %d", bad, code)
		}
	}
	if got := strings.Join(s.did, ", "); got != "pause j1, extend j1" {
		t.Errorf("done: %s", got)
	}
	s.fail = status.Error(codes.FailedPrecondition, "cannot cancel job j1, which is converged: the job's state does not allow it")
	if code, text := s.post("/jobs/j1/cancel", nil, form); code != 409 || !strings.Contains(text, "Cannot cancel job j1, which is converged") {
		t.Errorf("an action that is refused: %d", code)
	}
	if code, _ := s.get("/jobs/j1/explode"); code != 404 {
		t.Errorf("an action that does not exist: %d", code)
	}
}

// Nobody else's page can make a browser act.
func TestForgedActions(t *testing.T) {
	s := newSite(t, Config{})
	token := tokenForm.FindStringSubmatch(s.want("/jobs/j1/cancel", 200))[1]
	good := url.Values{"token": {token}}
	for name, c := range map[string]struct {
		header http.Header
		form   url.Values
	}{
		"another site":    {http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}}, good},
		"another origin":  {http.Header{"Origin": {"https://evil.example"}}, good},
		"no token":        {nil, url.Values{}},
		"another's token": {nil, url.Values{"token": {strings.Repeat("x", len(token))}}},
	} {
		if code, _ := s.post("/jobs/j1/cancel", c.header, c.form); code != http.StatusForbidden {
			t.Errorf("%s: %d", name, code)
		}
	}
	if len(s.did) != 0 {
		t.Errorf("done: %v", s.did)
	}
	if code, _ := s.post("/jobs/j1/cancel", http.Header{"Sec-Fetch-Site": {"same-origin"}}, good); code != 200 || len(s.did) != 1 {
		t.Errorf("the page's own form: %d, %v", code, s.did)
	}
}

// Protect stands before everything but what comes with the program.
func TestProtect(t *testing.T) {
	s := newSite(t, Config{Protect: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "who are you?", http.StatusUnauthorized) })
	}})
	for _, path := range []string{"/", "/jobs", "/jobs/j1", "/jobs/j1/plots/trace.svg", "/events/jobs", "/events/jobs/j1", "/workers", "/cluster", "/nothing"} {
		s.want(path, 401, "who are you?")
	}
	s.want("/static/style.css", 200)
}

func TestSeriesIsBounded(t *testing.T) {
	const chains, draws = 3, 300_000
	s := newSeries(chains, 2)
	add := func(c, first, n int) error {
		b := &pb.DrawBatch{Chain: int32(c), First: int32(first), Params: 2}
		b.Psi = psi(first, n)
		return s.add(b)
	}
	for first := 0; first < draws; first += 1000 {
		for c := range chains {
			if err := add(c+1, first, 1000); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := add(1, draws-500, 600); err != nil { // half of it again
		t.Fatal(err)
	}
	if err := add(1, draws+5000, 10); err == nil {
		t.Error("a gap was accepted")
	}
	d := s.all([]string{"a", "b"}, s.draws(0))
	if n := len(d.X[0][0]); n > s.most || n < s.most/4 || d.Every*(n-1) >= draws || d.X[1][2][n-1] != -float64(d.Every*(n-1)) {
		t.Errorf("%d draws of every %d", n, d.Every)
	}
	last := s.last([]string{"a", "b"}, s.draws(0))
	if n := len(last.X[0][2]); n < maxRecent/2 || last.First+n != draws || last.X[0][0][n-1] != draws-1 || last.X[0][0][0] != float64(last.First) {
		t.Errorf("the last %d draws from %d", n, last.First)
	}
}
