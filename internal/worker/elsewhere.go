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

// checkMemory returns an error if this worker has not the memory to drive a chain of a job, in a group of so many members.
func (c *jobCache) checkMemory(j *jobData, members int) error {
	if c.memory == 0 || j.preloaded {
		return nil
	}
	need, _ := driver.GroupMemory(j.spec, j.data.N(), j.data.D(), members)
	if need <= c.memory {
		return nil
	}
	return elsewhere{errors.New("it needs " + humanize.IBytes(uint64(need)) + " of memory at the least, and this worker has " + humanize.IBytes(uint64(c.memory)))}
}
