package worker

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/blobnet"
	"github.com/ulisse-gp/ulisse/internal/latent"
)

// latentPatience is how long a worker asks for latent vectors of which coordinators
// say that they are not there: one that lags behind may say so of what there is.
const latentPatience = 30 * time.Second

// keepLatent brings latent vectors to a majority of the coordinators.
func (c *coordinators) keepLatent(ctx context.Context, blob []byte) error {
	ref := latent.RefOf(blob)
	return c.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		b, err := blobnet.Send(ctx, pb.NewLatentsClient(conn), ref.SHA256, ref.Size, bytes.NewReader(blob), nil)
		switch code := status.Code(err); {
		case err == nil && !b.Complete:
			return status.Errorf(codes.Unavailable, "the latent vectors are there up to %d of %d bytes", b.Present, ref.Size)
		case code == codes.OutOfRange, code == codes.NotFound: // somebody else was sending the same
			return status.Error(codes.Unavailable, err.Error())
		}
		return err
	})
}

// latent returns latent vectors that a checkpoint names.
func (c *coordinators) latent(ctx context.Context, ref latent.Ref) (blob []byte, err error) {
	until := time.Now().Add(latentPatience)
	err = c.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		blob, err = blobnet.Read(ctx, pb.NewLatentsClient(conn), ref.SHA256, ref.Size)
		if status.Code(err) != codes.NotFound {
			return err
		}
		if time.Now().Before(until) {
			return status.Error(codes.Unavailable, err.Error())
		}
		return backoff.Permanent(fmt.Errorf("the latent vectors that the checkpoint names are on no coordinator (%s): restore them from a backup", ref.SHA256))
	})
	return blob, err
}
