package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// pageSize is the number of jobs asked for at a time.
const pageSize = 200

// Submit hands in a job. The request gets a client id if it has none, so that
// it can be repeated: one id makes one job.
func (c *Client) Submit(ctx context.Context, req *pb.SubmitRequest) (*pb.Job, error) {
	if req.ClientId == "" {
		req.ClientId = rand.Text()
	}
	return unary(ctx, c, pb.NewJobsClient, pb.JobsClient.Submit, req)
}

// Get returns a job by its id.
func (c *Client) Get(ctx context.Context, id string) (*pb.Job, error) {
	return unary(ctx, c, pb.NewJobsClient, pb.JobsClient.Get, &pb.GetJobRequest{Id: id})
}

// Jobs returns the jobs that the request selects, all pages of them, newest
// first.
func (c *Client) Jobs(ctx context.Context, req *pb.ListJobsRequest) ([]*pb.Job, error) {
	return c.FirstJobs(ctx, req, 0)
}

// FirstJobs returns the first limit of them, all if it is 0.
func (c *Client) FirstJobs(ctx context.Context, req *pb.ListJobsRequest, limit int) ([]*pb.Job, error) {
	var all []*pb.Job
	for {
		req.PageSize = pageSize
		if limit > 0 {
			req.PageSize = int32(min(pageSize, limit-len(all)))
		}
		page, err := unary(ctx, c, pb.NewJobsClient, pb.JobsClient.List, req)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Jobs...)
		if limit > 0 && len(all) > limit {
			all = all[:limit]
		}
		if req.PageToken = page.NextPageToken; req.PageToken == "" || limit > 0 && len(all) >= limit {
			return all, nil
		}
	}
}

// Find returns the job that a user means: the one with this id, else the newest
// with this name, else the only one whose id begins so. others is the number of
// older jobs of that name.
func (c *Client) Find(ctx context.Context, arg string) (job *pb.Job, others int, err error) {
	if arg == "" {
		return nil, 0, &Error{Code: codes.InvalidArgument, Message: "a job's id or name is empty"}
	}
	job, err = c.Get(ctx, arg)
	if !NotFound(err) {
		return job, 0, err
	}
	named, err := c.Jobs(ctx, &pb.ListJobsRequest{Name: arg})
	if err != nil {
		return nil, 0, err
	}
	for _, j := range named {
		if j.Name == arg && job == nil {
			job = j
		} else if j.Name == arg {
			others++
		}
	}
	if job != nil {
		return job, others, nil
	}
	all, err := c.Jobs(ctx, &pb.ListJobsRequest{})
	if err != nil {
		return nil, 0, err
	}
	var ids []string
	for _, j := range all {
		if strings.HasPrefix(j.Id, arg) {
			job, ids = j, append(ids, j.Id)
		}
	}
	switch len(ids) {
	case 0:
		return nil, 0, &Error{Code: codes.NotFound, Message: fmt.Sprintf("there is no job %q: see 'ulisse jobs'", arg)}
	case 1:
		return job, 0, nil
	}
	return nil, 0, &Error{Code: codes.InvalidArgument, Message: fmt.Sprintf("%q begins the ids of %d jobs, %s: give more of it", arg, len(ids), listed(ids))}
}

// listed joins the first few of many.
func listed(s []string) string {
	const few = 3
	if len(s) > few {
		return strings.Join(s[:few], ", ") + ", …"
	}
	return strings.Join(s, ", ")
}

// Pause stops a job's chains at their next checkpoint.
func (c *Client) Pause(ctx context.Context, id string) (*pb.Job, error) {
	return unary(ctx, c, pb.NewJobsClient, pb.JobsClient.Pause, &pb.JobActionRequest{Id: id})
}

// Resume lets a paused job go on.
func (c *Client) Resume(ctx context.Context, id string) (*pb.Job, error) {
	return unary(ctx, c, pb.NewJobsClient, pb.JobsClient.Resume, &pb.JobActionRequest{Id: id})
}

// Cancel ends a job; its draws are kept.
func (c *Client) Cancel(ctx context.Context, id string) (*pb.Job, error) {
	return unary(ctx, c, pb.NewJobsClient, pb.JobsClient.Cancel, &pb.JobActionRequest{Id: id})
}

// Extend lets a job, finished or not, draw more of each chain, or be certified. It is not
// repeated: twice is twice as many.
func (c *Client) Extend(ctx context.Context, id string, draws int, certify bool) (*pb.Job, error) {
	return once(ctx, c, pb.NewJobsClient, pb.JobsClient.Extend, &pb.ExtendRequest{Id: id, Draws: int32(draws), Certify: certify})
}

// ExtendTo lets a job go on to what another specification says of its end.
func (c *Client) ExtendTo(ctx context.Context, id, spec string) (*pb.Job, error) {
	return unary(ctx, c, pb.NewJobsClient, pb.JobsClient.Extend, &pb.ExtendRequest{Id: id, Spec: spec})
}

// Annotate changes the note on a job, unless it is nil, and adds and removes tags.
func (c *Client) Annotate(ctx context.Context, id string, note *string, tag, untag []string) (*pb.Job, error) {
	return unary(ctx, c, pb.NewJobsClient, pb.JobsClient.Annotate, &pb.AnnotateRequest{Id: id, Note: note, Tag: tag, Untag: untag})
}

// Delete removes a job that has ended.
func (c *Client) Delete(ctx context.Context, id string) error {
	failed := false
	again := func(err error) bool {
		failed = failed || unavailable(err)
		return unavailable(err)
	}
	_, err := try(ctx, c, again, pb.NewJobsClient, pb.JobsClient.Delete, &pb.JobActionRequest{Id: id})
	if failed && NotFound(err) { // the attempt whose answer was lost did it
		return nil
	}
	return err
}

// Summary returns the summary of the draws so far, as the JSON of
// report.Summary.
func (c *Client) Summary(ctx context.Context, id string) (string, error) {
	r, err := unary(ctx, c, pb.NewJobsClient, pb.JobsClient.Summary, &pb.GetJobRequest{Id: id})
	if err != nil {
		return "", err
	}
	return r.Json, nil
}

// Events returns what happened to a job, oldest first: the latest few hundred.
func (c *Client) Events(ctx context.Context, id string) ([]*pb.JobNote, error) {
	h, err := unary(ctx, c, pb.NewHistoryClient, pb.HistoryClient.Run, &pb.RunHistoryRequest{Id: id})
	if err != nil {
		return nil, err
	}
	return h.Notes, nil
}
