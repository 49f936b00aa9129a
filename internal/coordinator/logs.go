package coordinator

import (
	"context"
	"regexp"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/joblog"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Limits of logs.
const (
	maxLogLines = 10_000 // at once
	// peerTimeout bounds what other coordinators may take to answer, or to take lines.
	peerTimeout = 2 * time.Second
	// followEvery is how often a log that is followed is looked at though nothing
	// has come: the job may have ended.
	followEvery = time.Second
)

// jobID is what a job's id looks like: a part of a file's name.
var jobID = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

// Log takes log lines from a worker, or from the leader that did.
func (s *workersService) Log(ctx context.Context, r *pb.LogRequest) (*pb.LogResponse, error) {
	if !jobID.MatchString(r.Job) {
		return nil, badField("job", "this is not a job's id")
	}
	if len(r.Lines) > maxLogLines {
		return nil, badField("lines", "too many lines at once")
	}
	// The leader has looked at what it copies to others; what others pass on to it is a worker's.
	copied := isForwarded(ctx) && !rpc.Marked(ctx, rpc.OnBehalf)
	err := s.c.node.View(func(tx *bbolt.Tx) error {
		j, err := state.GetJob(tx, r.Job)
		if err == nil && !copied && !j.Drives(r.Secret) {
			err = state.ErrFenced
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	at := time.Now().UTC()
	if r.Received != nil && copied { // so that all copies are the same
		at = r.Received.AsTime()
	}
	b := joblog.Batch{Job: r.Job}
	for _, text := range r.Lines {
		b.Entries = append(b.Entries, joblog.Entry{Time: at, Chain: r.Chain, Worker: r.Worker, Text: text})
	}
	if err := s.c.logs.Append(r.Job, b.Entries); err != nil {
		return nil, err
	}
	s.c.checker.Heard(state.ChainKey{Job: r.Job, Chain: int(r.Chain)}, at)
	s.c.workers.heard(r.Job, r.Worker)
	if s.c.node.IsLeader() && len(b.Entries) > 0 {
		s.c.copier.Copy(s.c.cfg.Peers(), b)
	}
	return &pb.LogResponse{}, nil
}

// sendLog hands lines, all of one chain, on to another coordinator. Lines that do
// not arrive are missed by nobody but readers there.
func (c *Coordinator) sendLog(ctx context.Context, peer string, b joblog.Batch) {
	conn, err := c.peers.Conn(peer)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(forwarded(ctx), peerTimeout)
	defer cancel()
	e := b.Entries[0]
	r := &pb.LogRequest{Job: b.Job, Chain: e.Chain, Worker: e.Worker, Received: timestamppb.New(e.Time)}
	for _, e := range b.Entries {
		r.Lines = append(r.Lines, e.Text)
	}
	_, _ = pb.NewWorkersClient(conn).Log(ctx, r)
}

// Logs sends the log of a job: what this coordinator has of it together with
// what others have, who may have been there when it was not.
func (s *jobsService) Logs(r *pb.LogsRequest, out grpc.ServerStreamingServer[pb.LogLine]) error {
	ctx := out.Context()
	if _, err := s.Get(ctx, &pb.GetJobRequest{Id: r.Id, Stale: isForwarded(ctx)}); err != nil {
		return err
	}
	own, changed, err := s.c.logs.Read(r.Id, r.Chain)
	if err != nil {
		return err
	}
	all := own
	if !isForwarded(ctx) {
		all = joblog.Merge(own, s.elsewhere(ctx, r)...)
	}
	if r.Tail > 0 {
		all = all[max(0, len(all)-int(r.Tail)):]
	}
	if err := sendLines(all, out); err != nil || !r.Follow {
		return err
	}
	return s.followLog(r, len(own), changed, out)
}

// followLog sends the lines of this coordinator's log that come after the first
// sent of them, until the job has ended.
func (s *jobsService) followLog(r *pb.LogsRequest, sent int, changed <-chan struct{}, out grpc.ServerStreamingServer[pb.LogLine]) error {
	ctx := out.Context()
	for {
		ended := false
		err := s.c.jobs.with(r.Id, func(j *followed) error { ended = j.Job.Phase.Ended(); return nil })
		if err != nil {
			return err
		}
		if !ended {
			select {
			case <-changed:
			case <-time.After(followEvery):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		var own []joblog.Entry
		if own, changed, err = s.c.logs.Read(r.Id, r.Chain); err != nil {
			return err
		}
		more := own[min(sent, len(own)):] // fewer than before: the oldest were dropped
		if err := sendLines(more, out); err != nil {
			return err
		}
		if sent = len(own); ended && len(more) == 0 {
			return nil
		}
	}
}

func sendLines(entries []joblog.Entry, out grpc.ServerStreamingServer[pb.LogLine]) error {
	for _, e := range entries {
		if err := out.Send(&pb.LogLine{Time: timestamppb.New(e.Time), Chain: e.Chain, Worker: e.Worker, Text: e.Text}); err != nil {
			return err
		}
	}
	return nil
}

// elsewhere returns what other coordinators have of a log, as far as they answer
// in time.
func (s *jobsService) elsewhere(ctx context.Context, r *pb.LogsRequest) [][]joblog.Entry {
	ctx, cancel := context.WithTimeout(onward(ctx), peerTimeout)
	defer cancel()
	peers := s.c.cfg.Peers()
	out := make([][]joblog.Entry, len(peers))
	var wg sync.WaitGroup
	for i, address := range peers {
		conn, err := s.c.peers.Conn(address)
		if err != nil {
			continue
		}
		wg.Go(func() {
			lines, err := pb.NewJobsClient(conn).Logs(ctx, &pb.LogsRequest{Id: r.Id, Chain: r.Chain})
			for err == nil {
				var l *pb.LogLine
				if l, err = lines.Recv(); err == nil {
					out[i] = append(out[i], joblog.Entry{Time: l.Time.AsTime(), Chain: l.Chain, Worker: l.Worker, Text: l.Text})
				}
			}
		})
	}
	wg.Wait()
	return out
}
