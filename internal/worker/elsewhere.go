package worker

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dustin/go-humanize"

	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/shard"
)

// elsewhere is an error of this worker: its disk, its network, its memory. Another
// one may be able to go on.
type elsewhere struct{ error }

func (e elsewhere) Unwrap() error { return e.error }

// ofWorker reports whether an error is this worker's, as far as can be told; what is
// wrong with a specification, or in the data, is wrong everywhere.
func ofWorker(err error) bool {
	var marked elsewhere
	var path *fs.PathError
	var errno syscall.Errno
	var network net.Error
	if errors.As(err, &marked) || errors.As(err, &path) || errors.As(err, &errno) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, shard.ErrUnsteady) {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded, codes.DataLoss:
		return true
	}
	return false
}

// checkMemory returns an error if a job needs more memory than this worker has.
func (c *jobCache) checkMemory(j *jobData) error {
	need := driver.LeastMemory(j.spec, j.data.N(), j.data.D())
	if c.memory == 0 || need <= c.memory {
		return nil
	}
	return elsewhere{errors.New("it needs " + humanize.IBytes(uint64(need)) + " of memory at the least, and this worker has " + humanize.IBytes(uint64(c.memory)))}
}
