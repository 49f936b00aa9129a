package coordinator

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cluster"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// status returns an error as the wire knows it.
func (c *Coordinator) status(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	var field *job.FieldError
	code := codes.Internal
	switch {
	case errors.As(err, &field):
		return badField(specField(field), field.Error())
	case errors.Is(err, cluster.ErrNotLeader):
		return c.notLeader()
	case errors.Is(err, cluster.ErrUnknownOutcome), errors.Is(err, cluster.ErrClosed), errors.Is(err, cluster.ErrDiverged):
		code = codes.Unavailable
	case errors.Is(err, cluster.ErrNoMember):
		code = codes.NotFound
	case errors.Is(err, state.ErrUnknownJob), errors.Is(err, state.ErrUnknownBlob), errors.Is(err, state.ErrNamespace), errors.Is(err, state.ErrToken):
		code = codes.NotFound
	case errors.Is(err, state.ErrQuota):
		code = codes.ResourceExhausted
	case errors.Is(err, state.ErrFenced), errors.Is(err, chains.ErrStale), errors.Is(err, state.ErrPhase), errors.Is(err, state.ErrConflict), errors.Is(err, chains.ErrPhase),
		errors.Is(err, state.ErrLatent):
		code = codes.FailedPrecondition
	case errors.Is(err, cluster.ErrMixedVersions), errors.Is(err, cluster.ErrMajority):
		code = codes.FailedPrecondition
	case errors.Is(err, state.ErrMalformed), errors.Is(err, chains.ErrShape):
		code = codes.InvalidArgument
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	}
	return status.Error(code, err.Error())
}

// specField returns the field of a request to submit that a mistake in its specification is in.
func specField(e *job.FieldError) string { return strings.TrimSuffix("spec."+e.Path, ".") }

// badField refuses a request for one of its fields.
func badField(path, msg string) error {
	s := status.New(codes.InvalidArgument, msg)
	if d, err := s.WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: path, Description: msg}}}); err == nil {
		s = d
	}
	return s.Err()
}
