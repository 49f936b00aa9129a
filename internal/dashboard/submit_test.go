package dashboard

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/job"
)

var (
	editor = regexp.MustCompile(`(?s)<textarea[^>]*>\n(.*)</textarea>`)
	hidden = regexp.MustCompile(`<input type="hidden" name="([a-z_]+)" value="([^"]*)">`)
)

// formOf returns the form of the editor on a page.
func formOf(page string) url.Values {
	out := url.Values{}
	if m := editor.FindStringSubmatch(page); m != nil {
		out.Set("spec", html.UnescapeString(m[1]))
	}
	for _, m := range hidden.FindAllStringSubmatch(page, -1) {
		out.Set(m[1], html.UnescapeString(m[2]))
	}
	return out
}

// as makes everybody who looks somebody.
func as(who *pb.Identity) Config {
	return Config{Viewer: func(*http.Request) *pb.Identity { return who }}
}

func TestSubmit(t *testing.T) {
	s := newSite(t, Config{})
	s.want("/jobs", 200, `href="/submit"`)
	page := s.want("/submit", 200, "<h1>Submit a job</h1>", "/static/submit.js", "2.0 kB, uploaded 2026-05-06 07:08, used by j1, bbbbbbbb")
	if at := strings.Index(page, "aaaaaaaa"); at < strings.Index(page, "bbbbbbbb") || strings.Contains(page, "cccccccc") {
		t.Error("tables: the latest first, and those alone that are whole")
	}
	form := formOf(page)
	if _, err := job.ParseString(form.Get("spec")); err != nil {
		t.Errorf("the first specification: %v", err)
	}

	good := form.Get("spec")
	form.Set("spec", strings.Replace(good, "kernel:", "kernl:", 1))
	form.Set("data", "bbbbbbbbbbbb")
	const where, why = "line 6, column 3: model.kernl", `unknown field: did you mean &#34;kernel&#34;?`
	if code, text := s.post("/submit/check", nil, form); code != 200 || !strings.Contains(text, `data-line="6"`) || !strings.Contains(text, where) || !strings.Contains(text, why) || strings.Contains(text, "<html") {
		t.Errorf("checked: %d %s", code, text)
	}
	code, text := s.post("/submit", nil, form)
	if code != 400 || !strings.Contains(text, where) || !strings.Contains(text, why) || !strings.Contains(text, `value="bbbbbbbbbbbb" selected`) {
		t.Errorf("submitted with a mistake: %d", code)
	}
	again := formOf(text)
	if again.Get("spec") != form.Get("spec") || again.Get("client_id") != form.Get("client_id") || len(s.handed) != 0 {
		t.Errorf("the form comes back as %v; submitted: %v", again, s.handed)
	}

	form.Set("spec", strings.ReplaceAll(good, "\n", "\r\n")) // as browsers send it
	form.Set("check", "1")
	if code, text := s.post("/submit", nil, form); code != 200 || !strings.Contains(text, "No mistakes.") || len(s.handed) != 0 {
		t.Errorf("checked without a script: %d, %v", code, s.handed)
	}
	form.Del("check")
	if code, text := s.post("/submit", nil, form); code != 200 || !strings.Contains(text, "<h1>submitted") {
		t.Errorf("submitted: %d", code)
	}
	if r := s.handed[0]; len(s.handed) != 1 || r.Spec != good || r.Data != "bbbbbbbbbbbb" || r.ClientId != form.Get("client_id") {
		t.Errorf("submitted: %v", s.handed)
	}
}

// What may have been submitted is submitted again under the same id, what was refused under another.
func TestSubmissionsThatFail(t *testing.T) {
	s := newSite(t, Config{})
	form := formOf(s.want("/submit", 200))
	for _, c := range []struct {
		err  error
		code int
		same bool
	}{
		{status.Error(codes.Unavailable, "electing"), 503, true},
		{status.Error(codes.ResourceExhausted, "the namespace lab has 3 jobs, its quota"), 429, false},
	} {
		s.fail = c.err
		code, text := s.post("/submit", nil, form)
		if same := formOf(text).Get("client_id") == form.Get("client_id"); code != c.code || same != c.same || !strings.Contains(text, status.Convert(c.err).Message()[1:]) {
			t.Errorf("%v: %d, the same id %v", c.err, code, same)
		}
	}
	for name, f := range map[string]url.Values{"no token": {"spec": {firstSpec}}, "another's": {"spec": {firstSpec}, "token": {strings.Repeat("x", 24)}}} {
		s.handed = nil
		for _, path := range []string{"/submit", "/submit/check"} {
			if code, text := s.post(path, nil, f); code != 403 || !strings.Contains(text, "This form is too old") || len(s.handed) > 0 {
				t.Errorf("%s: %s: %d", name, path, code)
			}
		}
	}
	form.Set("spec", strings.Repeat("x", maxSpecForm))
	if code, text := s.post("/submit", nil, form); code != 400 || !strings.Contains(text, "takes 4.0 MiB at a time") {
		t.Errorf("a large form: %d", code)
	}
}

func TestRepeat(t *testing.T) {
	s := newSite(t, Config{})
	s.change("j1", func(j *pb.Job) {
		j.State, j.Message, j.Namespace, j.Data.Blob = pb.JobState_JOB_STATE_FAILED, "chain 1 diverged at iteration 3: use a smaller sampler.step, method: exact, or informative priors", "lab", "aaaaaaaaaaaa"
	}, 0)
	s.want("/jobs/j1", 200, `href="/submit?job=j1"`, "Repeat with half the step…", `href="/submit?job=j1&amp;change=step"`)
	page := s.want("/submit?job=j1", 200, "Repeat <span", `value="aaaaaaaaaaaa" selected`)
	if got := formOf(page).Get("spec"); got != fakeSpec {
		t.Errorf("the specification of the job: %q", got)
	}
	page = s.want("/submit?job=j1&change=step", 200, "sampler.step is 0.4, half of what the job had.")
	spec, err := job.ParseString(formOf(page).Get("spec"))
	if err != nil || spec.Sampler.Step != job.Fixed(0.4) || spec.Name != "x" {
		t.Errorf("with half the step: %+v, %v", spec, err)
	}
	s.change("j1", func(j *pb.Job) { j.Message = "the disk is full" }, 0)
	if page := s.want("/jobs/j1", 200, "Repeat…"); strings.Contains(page, "half the step") {
		t.Error("a smaller step is no remedy for a full disk")
	}
	s.want("/submit?job=none", 404, "There is no job")
}

// Pages offer what the role allows, and say what it does not.
func TestRolesOnPages(t *testing.T) {
	for _, c := range []struct {
		who          *pb.Identity
		submit, acts bool
	}{
		{&pb.Identity{User: "ada", Role: "viewer"}, false, false},
		{&pb.Identity{User: "eve", Role: "submitter"}, true, false},
		{&pb.Identity{User: "ada", Role: "submitter"}, true, true},
		{&pb.Identity{User: "eve", Role: "admin"}, true, true},
		{&pb.Identity{}, true, true},
	} {
		s := newSite(t, as(c.who))
		_, jobs := s.get("/jobs")
		_, page := s.get("/jobs/j1")
		code, editor := s.get("/submit")
		if got := strings.Contains(jobs, `href="/submit"`); got != c.submit || strings.Contains(page, "Repeat…") != c.submit || (code == 200) != c.submit {
			t.Errorf("%v: may submit %v, the editor %d", c.who, got, code)
		}
		if !c.submit && (code != 403 || !strings.Contains(editor, "You may look, and submitting a job takes the role submitter")) {
			t.Errorf("%v: the editor: %d", c.who, code)
		}
		if got := strings.Contains(page, "Pause…"); got != c.acts {
			t.Errorf("%v: may act %v", c.who, got)
		}
	}
	s := newSite(t, as(&pb.Identity{User: "ada", Role: "viewer"}))
	s.get("/jobs/j1/pause") // for the cookie
	form := formOf(s.want("/jobs/j1/predict", 200))
	form.Set("spec", firstSpec)
	if code, _ := s.post("/submit", nil, form); code != 403 || len(s.handed) > 0 {
		t.Errorf("a viewer submits: %d", code)
	}
}
