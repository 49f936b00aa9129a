package client

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// Error is what a cluster answered to a call that it did not carry out, or why
// there was no answer.
type Error struct {
	Code    codes.Code
	Message string  // one sentence
	Fields  []Field // of the request that are wrong
}

// Field is a mistake in a request.
type Field struct {
	Path        string // as in solver.preconditioner.rank
	Description string
}

// Error returns the sentence, or those on the fields at fault with their paths;
// those of a specification as they stand in it.
func (e *Error) Error() string {
	if len(e.Fields) == 0 {
		return e.Message
	}
	var s []string
	for _, f := range e.Fields {
		if path := strings.TrimPrefix(strings.TrimPrefix(f.Path, "spec"), "."); path != "" && !strings.Contains(f.Description, path+": ") {
			s = append(s, path+": "+f.Description)
		} else {
			s = append(s, f.Description)
		}
	}
	return strings.Join(s, "; ")
}

// GRPCStatus returns the status that the error was made from, less its details.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// BadInput reports whether the request was at fault, not the cluster.
func (e *Error) BadInput() bool { return e.Code == codes.InvalidArgument || e.Code == codes.NotFound }

// NotFound reports whether an error says that there is no such thing.
func NotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == codes.NotFound
}

// Unavailable reports whether an error says that no coordinator answered.
func Unavailable(err error) bool {
	var e *Error
	return errors.As(err, &e) && unavailable(e)
}

// explain makes an *Error of what a call returned. Errors that are not of a
// call are left as they are.
func (c *Client) explain(err error) error {
	var done *Error
	if errors.As(err, &done) || errors.As(err, &stop{}) {
		return err
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	e := &Error{Code: s.Code(), Message: s.Message()}
	switch e.Code {
	case codes.Unavailable, codes.DeadlineExceeded:
		e.Message = fmt.Sprintf("no answer from the cluster at %s: %s", strings.Join(c.cfg.Addresses, ", "), rpc.Plain(s.Message()))
	case codes.Unimplemented:
		e.Message = "the cluster does not know this call: its version is another than this program's (" + s.Message() + ")"
	}
	for _, d := range s.Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			for _, v := range bad.FieldViolations {
				e.Fields = append(e.Fields, Field{v.Field, v.Description})
			}
		}
	}
	return e
}
