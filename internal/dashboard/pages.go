package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// page is what all pages have.
type page struct {
	Title   string
	Section string // of the navigation
	Events  string // path of the page's stream; none if empty
	Script  string // of the page's own, beside that of all; none if empty
	Who     string
	Node    string
	Body    any
	Content string // template
}

var errNoPage = status.Error(codes.NotFound, "there is no such page")

// viewer returns who makes a request, nil if unknown.
func (d *Dashboard) viewer(r *http.Request) *pb.Identity {
	if d.Viewer == nil {
		return nil
	}
	return d.Viewer(r)
}

// page writes a page.
func (d *Dashboard) page(w http.ResponseWriter, r *http.Request, code int, p page, content string, body any) {
	p.Who, p.Node, p.Body, p.Content = d.viewer(r).GetUser(), d.Node, body, content
	var b bytes.Buffer
	if err := d.pages.ExecuteTemplate(&b, "layout", p); err != nil {
		d.Logger.Error("writing a page", "page", r.URL.Path, "error", err)
		http.Error(w, "the page could not be written; the coordinator's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes())
}

// text returns what a template makes of a value.
func (d *Dashboard) text(name string, v any) string {
	var b strings.Builder
	if err := d.pages.ExecuteTemplate(&b, name, v); err != nil {
		d.Logger.Error("writing a piece of a page", "piece", name, "error", err)
	}
	return b.String()
}

// fail shows what went wrong.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, err error) {
	d.page(w, r, httpStatus(err), page{Title: "Not possible"}, "problem", plain(err))
}

// plain says an error in a sentence for readers.
func plain(err error) string {
	if errors.Is(err, errBusy) {
		return err.Error()
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unavailable:
		return "The coordinators do not answer just now, perhaps because they are electing a leader. This page tries again by itself. (" + s.Message() + ")"
	case codes.DeadlineExceeded, codes.Canceled:
		return "The answer took too long. Try again."
	}
	if m := s.Message(); m != "" {
		return strings.ToUpper(m[:1]) + m[1:] + "."
	}
	return "Something went wrong."
}

// httpStatus returns the HTTP status that an error of a call stands for.
func httpStatus(err error) int {
	if errors.Is(err, errBusy) {
		return http.StatusServiceUnavailable
	}
	switch status.Code(err) {
	case codes.NotFound:
		return http.StatusNotFound
	case codes.InvalidArgument, codes.OutOfRange:
		return http.StatusBadRequest
	case codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted:
		return http.StatusConflict
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// staleFrom is the age from which a page says that it shows what was.
const staleFrom = 5 * time.Second

// stale says so if an answer with this header is old.
func stale(h metadata.MD) string {
	var seconds float64
	for _, v := range h.Get(rpc.StateAge) {
		fmt.Sscan(v, &seconds)
	}
	if age := time.Duration(seconds * float64(time.Second)); age > staleFrom {
		return fmt.Sprintf("This coordinator has not heard of the others for %s: what it shows may be out of date.", span(age))
	}
	return ""
}

// query is what the list of jobs is asked for.
type query struct {
	Name, State, Tag, Page string
}

func queryOf(r *http.Request) query {
	v := r.URL.Query()
	return query{Name: v.Get("q"), State: v.Get("state"), Tag: v.Get("tag"), Page: v.Get("page")}
}

// String returns the query as a URL has it.
func (q query) String() string {
	v := url.Values{}
	for k, x := range map[string]string{"q": q.Name, "state": q.State, "tag": q.Tag, "page": q.Page} {
		if x != "" {
			v.Set(k, x)
		}
	}
	return v.Encode()
}

// jobsView is the list of jobs.
type jobsView struct {
	Query  query
	States []string
	Jobs   []jobView
	Next   string // query of the next page
	Stale  string
	Submit bool // the viewer may
}

// jobsNow asks for the jobs of a query.
func (d *Dashboard) jobsNow(ctx context.Context, q query) (*jobsView, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req := &pb.ListJobsRequest{Name: q.Name, PageSize: pageSize, PageToken: q.Page, Stale: true}
	v := &jobsView{Query: q, States: client.StateWords()}
	if q.Tag != "" {
		req.Tags = words(q.Tag)
	}
	if i := slices.Index(v.States, q.State); i >= 0 {
		req.States = []pb.JobState{pb.JobState(i + 1)}
	} else if q.State == "active" {
		for s := range pb.JobState_name {
			if s != 0 && !client.Ended(pb.JobState(s)) {
				req.States = append(req.States, pb.JobState(s))
			}
		}
	}
	var h metadata.MD
	r, err := d.jobs.List(ctx, req, grpc.Header(&h))
	if err != nil {
		return nil, err
	}
	v.Stale = stale(h)
	for _, j := range r.Jobs {
		v.Jobs = append(v.Jobs, newJobView(j))
	}
	if q.Page = r.NextPageToken; q.Page != "" {
		v.Next = "/jobs?" + q.String()
	}
	return v, nil
}

func (d *Dashboard) jobsPage(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	v, err := d.jobsNow(r.Context(), q)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	v.Submit = may(d.viewer(r), nil)
	d.page(w, r, http.StatusOK, page{Title: "Jobs", Section: "jobs", Events: "/events/jobs?" + q.String()}, "jobs", v)
}

func (d *Dashboard) jobsEvents(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	d.stream(w, r, func(ctx context.Context) ([]message, error) {
		v, err := d.jobsNow(ctx, q)
		if err != nil {
			return nil, err
		}
		return []message{{ID: "jobs", HTML: d.text("jobs-table", v)}}, nil
	}, func(ctx context.Context) { pause(ctx, d.Every) })
}

// open returns the feed of a job that the viewer may see, and the job.
func (d *Dashboard) open(ctx context.Context, id string) (*feed, *pb.Job, string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var h metadata.MD
	j, err := d.jobs.Get(ctx, &pb.GetJobRequest{Id: id, Stale: true}, grpc.Header(&h))
	if err != nil {
		return nil, nil, "", err
	}
	f, err := d.feeds.open(j.Id)
	return f, j, stale(h), err
}

func (d *Dashboard) jobPage(w http.ResponseWriter, r *http.Request) {
	f, j, old, err := d.open(r.Context(), r.PathValue("id"))
	if err != nil {
		d.fail(w, r, err)
		return
	}
	defer d.feeds.close(f)
	f.arrive(r.Context(), j)
	v := d.jobNow(f, j, paramsOf(r), d.viewer(r))
	v.Others = d.others(r.Context(), j.Id)
	v.Stale, v.Done = old, actionOf(r.URL.Query().Get("done"))
	d.page(w, r, http.StatusOK, page{Title: title(j), Section: "jobs", Events: "/events/jobs/" + j.Id + "?" + r.URL.RawQuery}, "job", v)
}

func (d *Dashboard) jobEvents(w http.ResponseWriter, r *http.Request) {
	f, j, _, err := d.open(r.Context(), r.PathValue("id"))
	if err != nil {
		http.Error(w, plain(err), httpStatus(err))
		return
	}
	defer d.feeds.close(f)
	var changed <-chan struct{}
	d.stream(w, r, func(ctx context.Context) ([]message, error) {
		// Whoever looks may have lost the right to, since.
		at, err := d.jobs.Get(ctx, &pb.GetJobRequest{Id: j.Id, Stale: true})
		if err != nil && status.Code(err) != codes.Unavailable {
			return nil, err
		}
		now, c, err := f.state()
		changed = c
		if err != nil {
			return nil, err
		}
		if now != nil {
			j = now
		}
		v := d.jobNow(f, j, paramsOf(r), d.viewer(r))
		if at != nil { // a feed does not follow what is written on a job that has ended
			v.Job.Note, v.Job.Tags = at.Note, at.Tags
		}
		m := []message{{ID: "choices", Key: v.Names, HTML: d.text("job-choices", v)}, {ID: "figures", Key: v.Key, HTML: d.text("job-figures", v)}, {ID: "plots", Plots: v.Version}}
		for _, id := range []string{"state", "note", "progress", "summary", "files", "events", "log"} {
			m = append(m, message{ID: id, HTML: d.text("job-"+id, v)})
		}
		return m, nil
	}, func(ctx context.Context) { until(ctx, changed, 5*d.Every) })
}

// logsView is the log of a job.
type logsView struct {
	Job   jobView
	Chain int
	Lines []logLine
}

// job returns the job that a request names, or nil after it has told why there is none.
func (d *Dashboard) job(ctx context.Context, w http.ResponseWriter, r *http.Request) *pb.Job {
	j, err := d.jobs.Get(ctx, &pb.GetJobRequest{Id: r.PathValue("id"), Stale: true})
	if err != nil {
		d.fail(w, r, err)
		return nil
	}
	return j
}

func (d *Dashboard) logsPage(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	j := d.job(ctx, w, r)
	if j == nil {
		return
	}
	v := logsView{Job: newJobView(j)}
	fmt.Sscan(r.URL.Query().Get("chain"), &v.Chain)
	var err error
	if v.Lines, err = readLog(ctx, d.jobs, j.Id, v.Chain, logTail); err != nil {
		d.fail(w, r, err)
		return
	}
	d.page(w, r, http.StatusOK, page{Title: "Log of " + title(j), Section: "jobs"}, "logs", v)
}

// readLog returns the last lines of a job's log.
func readLog(ctx context.Context, c pb.JobsClient, id string, chain, tail int) ([]logLine, error) {
	in, err := c.Logs(ctx, &pb.LogsRequest{Id: id, Chain: int32(max(0, chain)), Tail: int32(tail)})
	if err != nil {
		return nil, err
	}
	var out []logLine
	for {
		l, err := in.Recv()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, newLogLine(l))
	}
}

// specPage sends the specification of a job as a file.
func (d *Dashboard) specPage(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	j := d.job(ctx, w, r)
	if j == nil {
		return
	}
	w.Header().Set("Content-Type", "application/yaml; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="spec.yaml"`)
	_, _ = w.Write([]byte(j.Spec))
}
