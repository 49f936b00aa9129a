package blobnet

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/blob"
)

// badField is an INVALID_ARGUMENT that says which field of the request is wrong.
func badField(field, format string, args ...any) error {
	msg := fmt.Sprintf(format, args...)
	st := status.New(codes.InvalidArgument, field+": "+msg)
	with, err := st.WithDetails(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: msg}},
	})
	if err != nil {
		return st.Err()
	}
	return with.Err()
}

// storeCodes gives each error of the store its code on the wire.
var storeCodes = []struct {
	err  error
	code codes.Code
}{
	{blob.ErrNotFound, codes.NotFound},
	{blob.ErrCorrupt, codes.DataLoss},
	{blob.ErrBusy, codes.Aborted},
	{blob.ErrExists, codes.Aborted}, // it has come another way: again, then
	{blob.ErrOffset, codes.OutOfRange},
	{blob.ErrDiskFull, codes.ResourceExhausted},
}

// wireError turns an error into one of the wire that names the blob.
func wireError(addr string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, blob.ErrAddress):
		return badField("sha256", "%v", err)
	case errors.Is(err, blob.ErrTooLarge):
		return badField("size", "%v", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, s := range storeCodes {
		if errors.Is(err, s.err) {
			return status.Errorf(s.code, "blob %s: %v", addr, err)
		}
	}
	return status.Errorf(codes.Internal, "blob %s: %v", addr, err)
}
