package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/blob"
	"github.com/ulisse-gp/ulisse/internal/blobnet"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Limits of uploads over HTTP, whose bodies wait on disk until their hash, and
// so their address, is known. Larger tables, and those that are to be resumed,
// go through the Data service, as `ulisse data upload` does it.
const (
	maxUpload   = 1 << 30 // bytes
	maxUploads  = 4       // at once
	ownUploads  = 2       // of these one caller's
	uploadIdle  = time.Minute
	spoolPrefix = "upload-"
)

// uploads takes data sets as bodies of PUT requests.
type uploads struct {
	dir   string // for bodies on their way
	data  pb.DataClient
	may   func(context.Context) error // refuses who may not upload; nil: nobody
	fail  func(http.ResponseWriter, *http.Request, error)
	slots *rpc.Share
	most  int64
	// reserve are the bytes of the disk that bodies on their way leave free.
	reserve int64
}

func newUploads(dir string, data pb.DataClient, fail func(http.ResponseWriter, *http.Request, error)) (*uploads, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of uploads: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, spoolPrefix+"*"))
	for _, name := range left { // by a process that was killed
		err = errors.Join(err, os.Remove(name))
	}
	return &uploads{dir: dir, data: data, fail: fail, slots: &rpc.Share{Each: ownUploads, All: maxUploads}, most: maxUpload}, err
}

// ServeHTTP stores the body and answers its address and size.
func (u *uploads) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := ""
	if id, err := senderOf(r); err == nil {
		who = id.User + " at " + id.From
	}
	end, err := u.slots.Take(who)
	if err != nil {
		unread(w)
		u.fail(w, r, status.Errorf(codes.Unavailable, "too many uploads are under way, %v: try again", err))
		return
	}
	defer end()
	ctx := outgoing(r)
	if u.may != nil { // before the disk is filled
		if err := u.may(ctx); err != nil {
			unread(w)
			u.fail(w, r, err)
			return
		}
	}
	b, err := u.take(ctx, http.MaxBytesReader(w, r.Body, u.most), http.NewResponseController(w))
	if err != nil {
		u.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"sha256": b.Sha256, "size": b.Size})
}

// submitters returns what refuses who may not upload.
func submitters(users pb.UsersClient) func(context.Context) error {
	return func(ctx context.Context) error {
		who, err := users.WhoAmI(ctx, &pb.WhoAmIRequest{})
		if err == nil && state.Role(who.Role) == state.Viewer {
			err = status.Error(codes.PermissionDenied, "Upload takes the role submitter, and this token has the role viewer")
		}
		return err
	}
}

func (u *uploads) take(ctx context.Context, body io.Reader, c *http.ResponseController) (*pb.Blob, error) {
	f, err := os.CreateTemp(u.dir, spoolPrefix+"*")
	if err != nil {
		return nil, status.Error(codes.Internal, "the upload could not be kept")
	}
	defer os.Remove(f.Name())
	defer f.Close()
	h := sha256.New()
	size, err := io.Copy(io.MultiWriter(&sparing{f, u.dir, u.reserve}, h), &patient{Reader: body, c: c, since: time.Now()})
	_ = c.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, badBody(fmt.Sprintf("it is larger than %d bytes: use 'ulisse data upload'", u.most))
	case errors.Is(err, blob.ErrDiskFull):
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, status.Errorf(codes.DeadlineExceeded, "nothing, or next to nothing, came for %v", uploadIdle)
	case err != nil:
		return nil, status.Errorf(codes.Aborted, "the body ended after %d bytes: %v", size, err)
	case size == 0:
		return nil, badBody("it is empty: send the table, as with curl --upload-file")
	}
	return blobnet.Send(ctx, u.data, hex.EncodeToString(h.Sum(nil)), size, f, nil)
}

// sparing writes as long as that leaves bytes of the disk free.
type sparing struct {
	io.Writer
	dir     string
	reserve int64
}

func (s *sparing) Write(p []byte) (int, error) {
	free, err := blob.DiskFree(s.dir)
	if err == nil && free-int64(len(p)) < s.reserve {
		return 0, fmt.Errorf("%w: %d bytes are free, %d are kept free", blob.ErrDiskFull, free, s.reserve)
	}
	return s.Writer.Write(p)
}

// badBody refuses a request for its body.
func badBody(why string) error { return badField("body", "the body: "+why, why) }

// badField is the answer to a field or parameter that will not do.
func badField(field, message, why string) error {
	s := status.New(codes.InvalidArgument, message)
	if d, err := s.WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: why}}}); err == nil {
		s = d
	}
	return s.Err()
}

// patient reads a body with a limit on the time between pieces, and a least rate.
type patient struct {
	io.Reader
	c     *http.ResponseController
	since time.Time // of the bytes
	bytes int64
}

func (p *patient) Read(b []byte) (int, error) {
	if span := time.Since(p.since); span >= uploadIdle {
		if float64(p.bytes) < blobnet.Slowest*span.Seconds() {
			return 0, os.ErrDeadlineExceeded
		}
		p.since, p.bytes = time.Now(), 0
	}
	_ = p.c.SetReadDeadline(time.Now().Add(uploadIdle))
	n, err := p.Reader.Read(b)
	p.bytes += int64(n)
	return n, err
}
