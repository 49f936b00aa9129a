package coordinator

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// maxScan bounds the entries of the index that are looked at for a page.
const maxScan = 20_000

// List returns jobs, newest first. It walks an index and reads the records of
// the jobs that it returns, and no others.
func (s *jobsService) List(ctx context.Context, r *pb.ListJobsRequest) (*pb.ListJobsResponse, error) {
	if r.PageSize < 0 || r.PageSize > maxPageSize {
		return nil, badField("page_size", fmt.Sprintf("a page has at most %d jobs", maxPageSize))
	}
	from, err := base64.RawURLEncoding.DecodeString(r.PageToken)
	if err != nil {
		return nil, badField("page_token", "this is not a token that a list gave")
	}
	if _, err := path.Match(r.Name, ""); err != nil {
		return nil, badField("name", fmt.Sprintf("%q is not a pattern: %v", r.Name, err))
	}
	var jobs []*state.Job
	out := &pb.ListJobsResponse{}
	err = s.c.read(ctx, r.Stale, func(tx *bbolt.Tx) error {
		var next []byte
		jobs, next, err = page(tx, r, from, auth.From(ctx))
		out.NextPageToken = base64.RawURLEncoding.EncodeToString(next)
		return err
	})
	if err != nil {
		return nil, err
	}
	reason := sync.OnceValue(func() string { return s.c.queueReason(auth.From(ctx)) })
	for _, j := range jobs {
		p := pbRecord(j)
		if !j.Phase.Ended() && j.Phase != state.Queued { // what moves is worth a look
			_ = s.c.jobs.with(j.ID, func(j *followed) error { p = pbJob(&j.Follower); return nil })
		}
		if unexplained(p) {
			p.Message = reason()
		}
		out.Jobs = append(out.Jobs, p)
	}
	return out, nil
}

// page returns the jobs of a page that begins at a key of the index, and the key
// at which the next one does.
func page(tx *bbolt.Tx, r *pb.ListJobsRequest, from []byte, who *auth.Identity) (jobs []*state.Job, next []byte, err error) {
	var since time.Time
	if r.Since != nil {
		since = r.Since.AsTime()
	}
	size, scanned := cmp.Or(int(r.PageSize), maxPageSize), 0
	var failed error
	next, err = state.Newest(tx, from, since, func(e state.Entry) bool {
		if scanned == maxScan {
			return false
		}
		if !who.Shows(e.Namespace) { // nor may the next page's token tell of it
			scanned++
			return true
		}
		if len(jobs) == size {
			return false
		}
		scanned++
		if !asksFor(r, &e) {
			return true
		}
		var j *state.Job
		if j, failed = state.GetJob(tx, e.ID); failed == nil {
			jobs = append(jobs, j)
		}
		return failed == nil
	})
	return jobs, next, errors.Join(err, failed)
}

// asksFor reports whether a request asks for a job.
func asksFor(r *pb.ListJobsRequest, e *state.Entry) bool {
	for _, tag := range r.Tags {
		if !slices.Contains(e.Tags, tag) {
			return false
		}
	}
	return (len(r.States) == 0 || slices.Contains(r.States, jobStates[e.Phase])) && matchesName(r.Name, e.Name)
}

// matchesName reports whether a name contains a text, or matches it if it is a
// pattern.
func matchesName(pattern, name string) bool {
	if !strings.ContainsAny(pattern, `*?[\`) {
		return strings.Contains(name, pattern)
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}
