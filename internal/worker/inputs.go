package worker

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"google.golang.org/grpc"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// inputsAddress names the inputs of a job's data: how to get them, and what
// they have to be.
func inputsAddress(job, sha256 string) string { return job + "/" + sha256 }

// Inputs returns the inputs of an address, reading the job's data if need be:
// what the row server computes with.
func (w *Worker) Inputs(ctx context.Context, address string) (*kernel.Inputs, error) {
	id, sha256, _ := strings.Cut(address, "/")
	j, err := w.jobWithData(ctx, id, sha256)
	if err != nil {
		return nil, err
	}
	return j.problem.Inputs, nil
}

// jobWithData returns a job with its data, which must have the given hash, reading
// them if need be.
func (w *Worker) jobWithData(ctx context.Context, id, sha256 string) (*jobData, error) {
	var j *pb.Job
	err := w.coords.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		j, err = pb.NewJobsClient(conn).Get(ctx, &pb.GetJobRequest{Id: id, Stale: true})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: job %q: %w", fs.ErrNotExist, id, err)
	}
	d, err := w.jobs.load(ctx, id, &pb.Assignment{Spec: j.Spec, Data: j.GetData().GetBlob()})
	if err != nil {
		return nil, err
	}
	if d.data.SHA256 != sha256 {
		return nil, fmt.Errorf("%w: the data of job %s have the hash %s, not %s", fs.ErrNotExist, id, d.data.SHA256, sha256)
	}
	return d, nil
}
