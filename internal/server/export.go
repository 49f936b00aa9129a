package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/export"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// maxExports bounds how many exports are made at once: each holds the draws of a
// job in memory.
const maxExports = 4

// exports answers with the draws of a job in a format that other programs read,
// as GET /v1/jobs/{id}/export?format=npz. It asks as the caller would, so that it
// shows nobody what Result and Logs do not.
type exports struct {
	jobs  pb.JobsClient
	fail  func(http.ResponseWriter, *http.Request, error)
	slots chan struct{}
}

func newExports(jobs pb.JobsClient, fail func(http.ResponseWriter, *http.Request, error)) *exports {
	return &exports{jobs: jobs, fail: fail, slots: make(chan struct{}, maxExports)}
}

func (e *exports) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	write, end, err := stream(cmp.Or(r.URL.Query().Get("format"), "npz"))
	if err != nil {
		e.fail(w, r, badField("format", err.Error(), err.Error()))
		return
	}
	select {
	case e.slots <- struct{}{}:
		defer func() { <-e.slots }()
	default:
		e.fail(w, r, status.Errorf(codes.Unavailable, "%d exports are under way, as many as are made at once: try again", cap(e.slots)))
		return
	}
	src, err := e.source(outgoing(r), r.PathValue("id"))
	if err != nil {
		e.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": src.Record.Spec.Name + end}))
	if write(w, src) != nil { // it has begun: cut it off, so that nobody takes it for whole
		panic(http.ErrAbortHandler)
	}
}

// stream returns what writes a format, and the ending of its file: one of internal/export's, or html, the
// report.
func stream(format string) (write func(io.Writer, *export.Source) error, end string, err error) {
	if format != "html" {
		return export.Stream(format)
	}
	return func(w io.Writer, src *export.Source) error {
		return report.WriteHTML(w, src.Record, src.Record.Summary(), src.Created)
	}, ".html", nil
}

// source returns what is known of a job: all but its data.
func (e *exports) source(ctx context.Context, id string) (*export.Source, error) {
	j, err := e.jobs.Get(ctx, &pb.GetJobRequest{Id: id})
	if err != nil {
		return nil, err
	}
	text, err := e.result(ctx, id)
	if err != nil {
		return nil, err
	}
	rec := &report.Record{}
	if err := json.Unmarshal(text, rec); err != nil {
		return nil, status.Errorf(codes.DataLoss, "the result of job %s cannot be read: %v", id, err)
	}
	if rec.Run == nil || rec.Run.Prepared == nil || rec.Run.MinDraws() == 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "job %s has no draws yet", id)
	}
	rec.Origin.Job = j.Id
	if j.Ended != nil {
		rec.Origin.Ended = j.Ended.AsTime()
	}
	if err := rec.Open(); err != nil {
		return nil, status.Errorf(codes.DataLoss, "the result of job %s cannot be read: %v", id, err)
	}
	stats, err := e.stats(ctx, rec, id)
	return &export.Source{Record: rec, Stats: stats, Created: time.Now()}, err
}

// result returns the JSON of a job's Result.
func (e *exports) result(ctx context.Context, id string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := e.jobs.Result(ctx, &pb.GetJobRequest{Id: id})
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for {
		c, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return text.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		text.Write(c.Json)
	}
}

// stats returns what the log tells of the iterations: nil where it does not come,
// for it is not replicated.
func (e *exports) stats(ctx context.Context, rec *report.Record, id string) (*report.Stats, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st := report.NewStats(rec.Run)
	s, err := e.jobs.Logs(ctx, &pb.LogsRequest{Id: id})
	for err == nil {
		var l *pb.LogLine
		if l, err = s.Recv(); err == nil {
			st.Add(rec.Run, []byte(l.Text))
			rec.Origin.Saw(l.Worker)
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !errors.Is(err, io.EOF) || !st.Known():
		return nil, nil
	}
	return st, nil
}
