package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Workers returns the workers that the cluster knows.
func (c *Client) Workers(ctx context.Context) ([]*pb.Worker, error) {
	r, err := unary(ctx, c, pb.NewWorkersClient, pb.WorkersClient.List, &pb.ListWorkersRequest{})
	if err != nil {
		return nil, err
	}
	return r.Workers, nil
}

// FindWorker returns the worker with this id, or the only one whose id begins
// so.
func (c *Client) FindWorker(ctx context.Context, arg string) (*pb.Worker, error) {
	all, err := c.Workers(ctx)
	if err != nil {
		return nil, err
	}
	var found *pb.Worker
	var ids []string
	for _, w := range all {
		if w.Id == arg {
			return w, nil
		}
		if arg != "" && strings.HasPrefix(w.Id, arg) {
			found, ids = w, append(ids, w.Id)
		}
	}
	switch len(ids) {
	case 0:
		return nil, &Error{Code: codes.NotFound, Message: fmt.Sprintf("there is no worker %q: see 'ulisse workers'", arg)}
	case 1:
		return found, nil
	}
	return nil, &Error{Code: codes.InvalidArgument, Message: fmt.Sprintf("%q begins the ids of %d workers, %s: give more of it", arg, len(ids), listed(ids))}
}

// Drain takes all work from a worker at the next checkpoints.
func (c *Client) Drain(ctx context.Context, id string) (*pb.Worker, error) {
	return unary(ctx, c, pb.NewWorkersClient, pb.WorkersClient.Drain, &pb.DrainRequest{Id: id})
}

// Members returns the coordinators.
func (c *Client) Members(ctx context.Context) (*pb.MembersResponse, error) {
	return unary(ctx, c, pb.NewClusterClient, pb.ClusterClient.Members, &pb.MembersRequest{})
}

// Promote makes a coordinator a voter once it has caught up.
func (c *Client) Promote(ctx context.Context, id string) (*pb.MembersResponse, error) {
	return unary(ctx, c, pb.NewClusterClient, pb.ClusterClient.Promote, &pb.MemberRequest{Id: id})
}

// Demote makes a coordinator a non-voter.
func (c *Client) Demote(ctx context.Context, id string, force bool) (*pb.MembersResponse, error) {
	return unary(ctx, c, pb.NewClusterClient, pb.ClusterClient.Demote, &pb.MemberRequest{Id: id, Force: force})
}

// Remove takes a coordinator out of the cluster.
func (c *Client) Remove(ctx context.Context, id string, force bool) (*pb.MembersResponse, error) {
	return unary(ctx, c, pb.NewClusterClient, pb.ClusterClient.Remove, &pb.MemberRequest{Id: id, Force: force})
}

// Transfer hands leadership to another voter: the one with this id, or
// whoever is best if it is empty. It is not repeated: leadership would move on.
func (c *Client) Transfer(ctx context.Context, id string) (*pb.MembersResponse, error) {
	return once(ctx, c, pb.NewClusterClient, pb.ClusterClient.Transfer, &pb.TransferRequest{Id: id})
}

// Backup writes a consistent copy of the replicated state and returns its size.
// It is repeated only as long as nothing has been written.
func (c *Client) Backup(ctx context.Context, w io.Writer) (int64, error) {
	var size int64
	err := c.attempts(ctx, c.cfg.Patience, func(err error) bool { return size == 0 && unavailable(err) },
		func(ctx context.Context, cc *grpc.ClientConn, heard func()) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			s, err := pb.NewClusterClient(cc).Backup(ctx, &pb.BackupRequest{})
			if err != nil {
				return err
			}
			n, err := io.Copy(w, &chunks[pb.BackupChunk]{s: s, bytes: (*pb.BackupChunk).GetData, heard: heard})
			size += n
			return err
		})
	if err == nil && size == 0 {
		err = errors.New("the cluster sent an empty backup")
	}
	return size, err
}

// Restore replaces the state of the whole cluster by a backup. It is not
// repeated.
func (c *Client) Restore(ctx context.Context, r io.Reader) (*pb.MembersResponse, error) {
	if err := c.reach(ctx); err != nil {
		return nil, err
	}
	var resp *pb.MembersResponse
	err := c.attempts(ctx, c.cfg.Patience, never, func(ctx context.Context, cc *grpc.ClientConn, _ func()) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, err := pb.NewClusterClient(cc).Restore(ctx)
		if err != nil {
			return err
		}
		for {
			buf := make([]byte, chunkBytes)
			n, err := io.ReadFull(r, buf)
			if n > 0 {
				if s.Send(&pb.BackupChunk{Data: buf[:n]}) != nil {
					break // the reason comes with the answer
				}
			}
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				break
			}
			if err != nil {
				return fmt.Errorf("cannot read the backup: %w", err)
			}
		}
		resp, err = s.CloseAndRecv()
		return err
	})
	return resp, err
}
