package dashboard

import (
	"bytes"
	"encoding/base64"
	"html"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// readable lets a job be predicted from, with two inputs.
func (s *site) readable() {
	s.change("j1", func(j *pb.Job) {
		j.State = pb.JobState_JOB_STATE_CONVERGED
		j.Data = &pb.DataInfo{Sha256: "s", N: 100, D: 2, Target: "rent", Inputs: []string{"size", "a <b>"}, InputScales: []*pb.Scale{{Mean: 71.25, Sd: 3}, {Mean: -2, Sd: 1}}}
	}, 0)
}

func TestPredictARow(t *testing.T) {
	s := newSite(t, Config{})
	s.want("/jobs/j1/predict", 200, "There is nothing to predict from yet: the job is sampling")
	s.readable()
	s.want("/jobs/j1", 200, `href="/jobs/j1/predict"`)
	page := s.want("/jobs/j1/predict", 200, "<h1>Predict rent</h1>", "size <input", "a &lt;b&gt; <input", `name="x0" inputmode="decimal" required value="71.25"`, `value="-2"`, "means of the rows")
	form := formOf(page)
	form.Set("x0", " 40 ")
	form.Set("x1", "−2.5") // as a minus is copied from a page
	code, text := s.post("/jobs/j1/predict", nil, form)
	for _, w := range []string{"<dd>37.5</dd>", "<dd>1</dd>", "<dd>35.5 to 39.5</dd>", `value="40"`, "noise and all"} {
		if code != 200 || !strings.Contains(text, w) {
			t.Errorf("a row: %d, no %q", code, w)
		}
	}
	form.Set("latent", "1")
	if _, text := s.post("/jobs/j1/predict", nil, form); !strings.Contains(text, "the function without the noise") || !strings.Contains(text, `value="1" checked`) {
		t.Error("without the noise")
	}
	if r := s.asked[1]; !r.Latent || s.asked[0].Latent || r.Id != "j1" || len(r.Inputs) != 2 || r.Kept != 0 {
		t.Errorf("asked for %v", r)
	}
	n := len(s.asked)
	for _, bad := range []string{"", "many", "NaN", "1e999", "Inf"} {
		form.Set("x1", bad)
		if code, text := s.post("/jobs/j1/predict", nil, form); code != 400 || !strings.Contains(text, `aria-invalid="true" aria-describedby="wrong1"`) || len(s.asked) != n {
			t.Errorf("%q: %d", bad, code)
		}
	}
	form.Set("x1", "0")
	if code, _ := s.post("/jobs/j1/predict", nil, url.Values{"x0": {"1"}, "x1": {"1"}}); code != 403 || len(s.asked) != n {
		t.Errorf("no token: %d", code)
	}
	s.fail = status.Error(codes.FailedPrecondition, "job j1 has nothing to predict from yet: its state is preparing")
	if code, text := s.post("/jobs/j1/predict", nil, form); code != 409 || !strings.Contains(text, "Job j1 has nothing to predict from yet") {
		t.Errorf("refused: %d", code)
	}
}

// A curve is drawn from predictions along one input, the others as typed; of a sum, of each term, too.
func TestPredictAlong(t *testing.T) {
	s := newSite(t, Config{})
	s.readable()
	form := formOf(s.want("/jobs/j1/predict", 200, "<option value=\"0\" selected>size</option>", "<option value=\"1\">a &lt;b&gt;</option>"))
	form.Set("x0", "71.25")
	form.Set("x1", "3")
	form.Set("along", "1")
	resp, err := s.client.PostForm(s.url+"/jobs/j1/curve", form)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if p := resp.Header.Get("Content-Security-Policy"); resp.StatusCode != 200 || !strings.Contains(p, "img-src 'self' data:;") || !strings.Contains(p, "script-src 'self';") {
		t.Errorf("code %d, policy %q", resp.StatusCode, p)
	}
	pictures := func(text string) (all []string) {
		for _, m := range regexp.MustCompile(`src="data:image/svg\+xml;base64,([^"]*)"`).FindAllStringSubmatch(html.UnescapeString(text), -1) {
			svg, err := base64.StdEncoding.DecodeString(m[1])
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(svg))
		}
		return all
	}
	if p := pictures(string(text)); len(p) != 1 || !strings.Contains(p[0], "rent over a &lt;b&gt;") || !strings.Contains(string(text), `<h2 id="curve-title">Along a &lt;b&gt;`) {
		t.Errorf("%d pictures", len(p))
	}
	rows := s.asked[0].Rows
	// The mean of the second input is -2, its sd 1.
	if first, last := rows[0].Inputs, rows[len(rows)-1].Inputs; len(rows) != 41 || first[0] != 71.25 || last[0] != 71.25 || first[1] != -4.5 || last[1] != 0.5 || s.asked[0].Terms {
		t.Errorf("asked for %v to %v, terms %v", first, last, s.asked[0].Terms)
	}
	s.change("j1", func(j *pb.Job) {
		j.Spec = "name: sum\ndata: {path: x.csv, target: y}\nmodel: {kernel: \"trend: rbf(size) + season: rbf(size)*matern32\"}\n"
	}, 0)
	_, sum := s.post("/jobs/j1/curve", nil, form)
	if p := pictures(sum); len(p) != 3 || !strings.Contains(p[1], "trend over") || !strings.Contains(sum, "What the term season adds to the function along a &lt;b&gt;") || !s.asked[1].Terms {
		t.Errorf("%d pictures of a sum", len(p))
	}
	for _, bad := range []string{"", "2", "-1", "x"} {
		form.Set("along", bad)
		if code, text := s.post("/jobs/j1/curve", nil, form); code != 400 || !strings.Contains(text, "and the curve an input") {
			t.Errorf("along %q: %d", bad, code)
		}
	}
	form.Set("along", "0")
	s.fail = status.Error(codes.FailedPrecondition, "job j1 has nothing to predict from yet: its state is preparing")
	if code, text := s.post("/jobs/j1/curve", nil, form); code != 409 || !strings.Contains(text, "nothing to predict from yet") {
		t.Errorf("refused: %d", code)
	}
}

// Of a job that goes on, or has no draws, the page says what predictions are from.
func TestPredictBeforeTheEnd(t *testing.T) {
	s := newSite(t, Config{})
	s.readable()
	s.change("j1", func(j *pb.Job) { j.State = pb.JobState_JOB_STATE_SAMPLING }, 0)
	page := s.want("/jobs/j1/predict", 200, "from the first 200 draws of each chain")
	form := formOf(page)
	form.Set("x0", "1")
	form.Set("x1", "2")
	if s.post("/jobs/j1/predict", nil, form); len(s.asked) != 1 || s.asked[0].Kept != 200 {
		t.Errorf("asked for %v", s.asked)
	}
	s.change("j1", func(j *pb.Job) {
		for _, c := range j.Progress.Chains {
			c.Draws = 0
		}
	}, 0)
	s.want("/jobs/j1/predict", 200, "The job has no draws yet", "normal approximation")
	s.change("j1", func(j *pb.Job) { j.Spec = strings.Replace(j.Spec, "target: y", "target: y, standardize: false", 1) }, 0)
	if page := s.want("/jobs/j1/predict", 200, `name="x0" inputmode="decimal" required value=""`); strings.Contains(page, "means of the rows") {
		t.Error("means that nobody has computed")
	}
}

// table uploads a table to be predicted.
func (s *site) table(token, csv string) (*http.Response, string) {
	s.t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	m.WriteField("token", token)
	if csv != "" {
		f, _ := m.CreateFormFile("table", "new.csv")
		io.WriteString(f, csv)
	}
	m.Close()
	resp, err := s.client.Post(s.url+"/jobs/j1/predictions", m.FormDataContentType(), &b)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp, string(text)
}

func TestPredictATable(t *testing.T) {
	s := newSite(t, Config{})
	s.readable()
	token := formOf(s.want("/jobs/j1/predict", 200)).Get("token")
	resp, text := s.table(token, "a <b>,size,other\n1,10,x\n2,20,y\n")
	if want := "row,mean,sd,q2.5,q50,q97.5\n1,11,1,9,11,13\n2,22,1,20,22,24\n"; resp.StatusCode != 200 || text != want || resp.Header.Get("Content-Disposition") != "attachment; filename=first-predictions.csv" {
		t.Errorf("%d %v\n%s", resp.StatusCode, resp.Header, text)
	}
	if _, text = s.table(token, "a <b>,size,rent\n1,10,5\n"); !strings.HasSuffix(text, "target,log_density,crps,pit\n1,11,1,9,11,13,5,5,5,5\n") {
		t.Errorf("with targets:\n%s", text)
	}
	many := "size,a <b>\n" + strings.Repeat("1,2\n", 3000)
	if _, text = s.table(token, many); strings.Count(text, "\n") != 3001 || len(s.asked) < 4 {
		t.Errorf("%d lines of %d requests", strings.Count(text, "\n"), len(s.asked))
	}
	for csv, want := range map[string]string{
		"":                       "Choose a file first",
		"size\n1\n":              "The table: ",
		"size,a <b>\n1,x\n":      "line 2",
		strings.Repeat("x", 9e6): "takes 8.0 MiB at a time",
		"size,a <b>\n" + strings.Repeat("1,2\n", maxTableRows+1): "10000",
	} {
		if resp, text := s.table(token, csv); resp.StatusCode != 400 || !strings.Contains(text, want) {
			t.Errorf("%.20q: %d, no %q", csv, resp.StatusCode, want)
		}
	}
	if resp, _ := s.table("forged", "size,a <b>\n1,2\n"); resp.StatusCode != 403 {
		t.Errorf("forged: %d", resp.StatusCode)
	}
	for range maxPredictions {
		s.d.predicting <- struct{}{}
	}
	if resp, text := s.table(token, many); resp.StatusCode != 429 || !strings.Contains(text, "As many predictions") {
		t.Errorf("too many at once: %d", resp.StatusCode)
	}
}

// Categories are chosen from their levels, dates are written as such, and what may be missing may be left empty.
func TestPredictFromATableOfPeople(t *testing.T) {
	s := newSite(t, Config{})
	s.change("j1", func(j *pb.Job) {
		j.State = pb.JobState_JOB_STATE_CONVERGED
		j.Data = &pb.DataInfo{Sha256: "s", N: 100, D: 4, Target: "rent", Inputs: []string{"city", "day", "size", "size_missing"},
			InputScales: []*pb.Scale{{Sd: 1}, {Mean: 14975, Sd: 3}, {Mean: 71.25, Sd: 3}, {Mean: 0.5, Sd: 1}},
			Levels:      []*pb.Levels{{Names: []string{"Bern", "a <b>"}}, {}, {}, {}}, Dates: []*pb.Dates{{}, {Unit: "days"}, {}, {}},
			Imputed: []*pb.Imputed{{Input: 1, Median: 14000}, {Input: 2, Median: 70, Indicator: 3}}}
	}, 0)
	form := formOf(s.want("/jobs/j1/predict", 200, `<select name="x0">`, `<option value="Bern">Bern</option>`, `<option value="a &lt;b&gt;">`, `placeholder="as in 1970-01-01"`,
		`value="2011-01-01"`, `name="x2" inputmode="decimal" value="71.25"`))
	form.Set("x0", "a <b>")
	form.Set("x1", "2011-01-02")
	form.Set("x2", "")
	if code, text := s.post("/jobs/j1/predict", nil, form); code != 200 || !strings.Contains(text, `<option value="a &lt;b&gt;" selected>`) {
		t.Errorf("a row: %d", code)
	}
	want := []float64{1, 14976, 70, 1}
	if r := s.asked[0]; len(r.Inputs) != 4 || !slices.Equal(r.Rows[0].Inputs, want) {
		t.Errorf("asked for %v", r)
	}
	form.Set("along", "0")
	if code, _ := s.post("/jobs/j1/curve", nil, form); code != 200 || len(s.asked[1].Rows) != 2 || !slices.Equal(s.asked[1].Rows[0].Inputs, []float64{0, 14976, 70, 1}) {
		t.Errorf("along levels: %d, %v", code, s.asked)
	}
	form.Set("along", "2")
	if code, _ := s.post("/jobs/j1/curve", nil, form); code != 200 || s.asked[2].Rows[0].Inputs[3] != 0 || s.asked[2].Rows[0].Inputs[2] != 71.25-2.5*3 {
		t.Errorf("along what is missing: %d, %v", code, s.asked[2])
	}
	s.asked = s.asked[:1]
	form.Set("x0", "Rome")
	if code, text := s.post("/jobs/j1/predict", nil, form); code != 400 || !strings.Contains(text, "is none of the levels") || len(s.asked) != 1 {
		t.Errorf("no level: %d", code)
	}
	token := formOf(s.want("/jobs/j1/predict", 200)).Get("token")
	s.table(token, "size,day,city\n,2011-01-02,a <b>\n")
	if r := s.asked[1]; !slices.Equal(r.Rows[0].Inputs, want) {
		t.Errorf("of a table: %v", r)
	}
	if resp, text := s.table(token, "size,day,city\n,2011-01-02,Rome\n"); resp.StatusCode != 400 || !strings.Contains(text, "is none of the levels") {
		t.Errorf("of a table: %d", resp.StatusCode)
	}
}
