package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// maxSpecForm bounds a form with a specification, whose characters may take three each.
const maxSpecForm = 4 << 20

// firstSpec is what the editor holds of a new job.
const firstSpec = `name: first
data:
  path: table.csv  # of an uploaded table any name will do
  target: y        # the column to predict; all others are inputs
model:
  kernel: matern52
  ard: true        # a length-scale for each input
sampler: {chains: 4, draws: 500}
stop: {rhat: 1.01, ess: 400, max_draws: 5000, max_time: 1h}
seed: 1
`

// submitView is the page on which a job is submitted.
type submitView struct {
	Token    string
	ClientID string // by which the job is submitted once, however often the form is sent
	From     string // the job that is repeated, if one is
	Change   string // what is not as it was there
	Spec     string
	Data     string // address of an uploaded table; empty for what the specification names
	Tables   []tableView
	// Namespace is asked for if the viewer has Several.
	Namespace string
	Several   bool
	Checked   bool // and Mistakes are all that was found
	Mistakes  []mistakeView
}

// tableView is an uploaded table.
type tableView struct{ SHA256, Text string }

// mistakeView is why a job would be refused.
type mistakeView struct {
	Line          int32 // of the specification; 0 for none
	Where, Reason string
}

// may reports whether somebody may change a job or, if it is nil, submit one. Who is not known may try:
// the cluster decides.
func may(who *pb.Identity, j *pb.Job) bool {
	switch who.GetRole() {
	case "viewer":
		return false
	case "submitter":
		return j == nil || j.Owner == who.User
	}
	return true
}

var errOnlyLooks = status.Error(codes.PermissionDenied, "you may look, and submitting a job takes the role submitter: an administrator can give you a token that has it")

// submitPage shows the editor, with the specification of a job that is to be repeated or a first one.
func (d *Dashboard) submitPage(w http.ResponseWriter, r *http.Request) {
	if !may(d.viewer(r), nil) {
		d.fail(w, r, errOnlyLooks)
		return
	}
	v := submitView{ClientID: rand.Text(), Spec: firstSpec}
	if id := r.URL.Query().Get("job"); id != "" {
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		j, err := d.jobs.Get(ctx, &pb.GetJobRequest{Id: id, Stale: true})
		if err != nil {
			d.fail(w, r, err)
			return
		}
		v.From, v.Spec, v.Data, v.Namespace = j.Id, j.Spec, j.GetData().GetBlob(), j.Namespace
		if r.URL.Query().Get("change") == "step" {
			if text, said := halfStep(j); text != "" {
				v.Spec, v.Change = text, said
			}
		}
	}
	d.showSubmit(w, r, http.StatusOK, v)
}

// showSubmit shows the editor.
func (d *Dashboard) showSubmit(w http.ResponseWriter, r *http.Request, code int, v submitView) {
	v.Token, v.Tables = token(w, r), d.tables(r.Context(), v.Data)
	spaces := d.viewer(r).GetNamespaces()
	v.Several = len(spaces) > 1 || slices.Contains(spaces, "*")
	p := page{Title: "Submit a job", Section: "jobs", Script: "submit.js"}
	if v.From != "" {
		p.Title = "Repeat " + v.From
	}
	d.page(w, r, code, p, "submit", v)
}

// halfStep returns the specification of a job with half its step, and says so; nothing for a method without one.
func halfStep(j *pb.Job) (text, said string) {
	spec, err := job.ParseString(j.Spec)
	if err != nil || spec.Needs().MaxStep == 0 {
		return "", ""
	}
	was := spec.Sampler.Step.Or(spec.Needs().Step)
	if at := j.GetProgress().GetStep(); at > 0 { // the noise of its gradients allowed no more
		was = min(was, at)
	}
	spec.Sampler.Step = job.Fixed(was / 2)
	out, err := spec.YAML()
	if err != nil {
		return "", ""
	}
	return string(out), fmt.Sprintf("sampler.step is %.4g, half of what the job had.", was/2)
}

// diverged reports whether a job has failed of what a smaller step may cure.
func diverged(j *pb.Job) bool {
	return j.State == pb.JobState_JOB_STATE_FAILED && strings.Contains(j.Message, sampler.Remedy)
}

// mostTables bounds the uploaded tables to choose from.
const mostTables = 100

// tables returns the uploaded tables, the latest first, and that one in any case.
func (d *Dashboard) tables(ctx context.Context, chosen string) []tableView {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := d.data.List(ctx, &pb.ListBlobsRequest{})
	if err != nil { // the page does without
		r = &pb.ListBlobsResponse{}
	}
	slices.SortStableFunc(r.Blobs, func(a, b *pb.Blob) int { return when(b.Stored).Compare(when(a.Stored)) })
	var out []tableView
	known := chosen == ""
	for _, b := range r.Blobs {
		if !b.Complete || len(out) >= mostTables && b.Sha256 != chosen {
			continue
		}
		text := fmt.Sprintf("%s, uploaded %s", humanize.Bytes(uint64(max(0, b.Size))), when(b.Stored).UTC().Format("2006-01-02 15:04"))
		if len(b.Jobs) > 0 {
			text += ", used by " + strings.Join(b.Jobs[:min(3, len(b.Jobs))], ", ")
		}
		known = known || b.Sha256 == chosen
		out = append(out, tableView{b.Sha256, text + ", " + b.Sha256[:min(8, len(b.Sha256))]})
	}
	if !known {
		out = append(out, tableView{chosen, chosen})
	}
	return out
}

// submitted returns the editor as a form has it, and the request that it makes.
func submitted(r *http.Request) (submitView, *pb.SubmitRequest) {
	v := submitView{ClientID: cmp.Or(r.PostFormValue("client_id"), rand.Text()), From: r.PostFormValue("job"), Spec: strings.ReplaceAll(r.PostFormValue("spec"), "\r\n", "\n"),
		Data: r.PostFormValue("data"), Namespace: strings.TrimSpace(r.PostFormValue("namespace"))}
	return v, &pb.SubmitRequest{Spec: v.Spec, Data: v.Data, ClientId: v.ClientID, Namespace: v.Namespace}
}

// check asks what is wrong with a request.
func (d *Dashboard) check(ctx context.Context, v *submitView, req *pb.SubmitRequest) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	a, err := d.jobs.Validate(ctx, req)
	if err != nil {
		return err
	}
	v.Checked = true
	for _, m := range a.Mistakes {
		v.Mistakes = append(v.Mistakes, newMistake(m))
	}
	return nil
}

func newMistake(m *pb.Mistake) mistakeView {
	v := mistakeView{Line: m.Line, Where: strings.TrimPrefix(strings.TrimPrefix(m.Field, "spec"), "."), Reason: m.Message}
	place := ""
	switch {
	case m.Column > 0:
		place = fmt.Sprintf("line %d, column %d", m.Line, m.Column)
	case m.Line > 0:
		place = fmt.Sprintf("line %d", m.Line)
	}
	v.Where = strings.TrimSuffix(strings.TrimPrefix(place+": "+v.Where, ": "), ": ")
	return v
}

// checkForm answers what is wrong with the editor's content, as a piece of the page.
func (d *Dashboard) checkForm(w http.ResponseWriter, r *http.Request) {
	v, code := submitView{}, http.StatusOK
	err := readForm(w, r, maxSpecForm)
	if err == nil {
		var req *pb.SubmitRequest
		v, req = submitted(r)
		err = d.check(r.Context(), &v, req)
	}
	if err != nil {
		v.Mistakes, code = []mistakeView{{Reason: plain(err)}}, httpStatus(err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(d.text("mistakes", v)))
}

// submit submits the editor's content, or only checks it if that is asked for.
func (d *Dashboard) submit(w http.ResponseWriter, r *http.Request) {
	err := readForm(w, r, maxSpecForm)
	v, req := submitted(r)
	if err == nil && !may(d.viewer(r), nil) {
		d.fail(w, r, errOnlyLooks)
		return
	}
	if err == nil {
		err = d.check(r.Context(), &v, req)
	}
	if err == nil && (len(v.Mistakes) > 0 || r.PostFormValue("check") != "") {
		code := http.StatusOK
		if len(v.Mistakes) > 0 {
			code = http.StatusBadRequest
		}
		d.showSubmit(w, r, code, v)
		return
	}
	var j *pb.Job
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		j, err = d.jobs.Submit(ctx, req)
	}
	if err != nil {
		if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded { // else it may have been submitted
			v.ClientID = rand.Text()
		}
		v.Checked, v.Mistakes = false, []mistakeView{{Reason: plain(err)}}
		d.showSubmit(w, r, httpStatus(err), v)
		return
	}
	d.Logger.Info("job submitted from the dashboard", "job", j.Id, "who", d.viewer(r).GetUser())
	http.Redirect(w, r, "/jobs/"+j.Id, http.StatusSeeOther)
}
