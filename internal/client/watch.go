package client

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Watch calls each (which may be nil) with the job now and after every change,
// and returns it once it has ended. Once the cluster has answered it waits for
// as long as ctx allows, whatever coordinators are lost.
func (c *Client) Watch(ctx context.Context, id string, each func(*pb.Job)) (*pb.Job, error) {
	var last *pb.Job
	request := func() *pb.WatchRequest { return &pb.WatchRequest{Id: id} }
	see := func(j *pb.Job) error {
		last = j
		if each != nil {
			each(j)
		}
		if Ended(j.State) {
			return io.EOF
		}
		return nil
	}
	pause := pauses()
	for {
		patience := c.cfg.Patience
		if last != nil {
			patience = 0
		}
		err := stream(ctx, c, patience, true, pb.NewJobsClient, pb.JobsClient.Watch, request, see)
		switch {
		case err == io.EOF:
			return last, nil
		case ctx.Err() != nil:
			return last, ctx.Err()
		case err != nil && (last == nil || !unavailable(err)):
			return last, err
		}
		// The stream ended before the job: its coordinator is going down.
		i, _ := c.current()
		c.leave(i)
		if !sleep(ctx, pause.NextBackOff()) {
			return last, ctx.Err()
		}
	}
}

// Result is a run with what is needed to tell its results.
type Result struct {
	Spec           string       `json:"spec"` // YAML
	Data           dataset.Info `json:"data"`
	Run            *chains.Run  `json:"run"`
	WallSeconds    float64      `json:"wall_seconds"`
	InstructionSet string       `json:"instruction_set"`
	State          string       `json:"state"` // of a job that has not come to its end
}

// Result returns a job's run as far as it has come. Run is nil if the job has
// not begun.
func (c *Client) Result(ctx context.Context, id string) (*Result, error) {
	var res *Result
	err := c.attempts(ctx, c.cfg.Patience, unavailable, func(ctx context.Context, cc *grpc.ClientConn, heard func()) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, err := pb.NewJobsClient(cc).Result(ctx, &pb.GetJobRequest{Id: id})
		if err != nil {
			return err
		}
		r := &chunks[pb.ResultChunk]{s: s, bytes: (*pb.ResultChunk).GetJson, heard: heard}
		res = &Result{}
		dec := json.NewDecoder(r)
		if err := dec.Decode(res); err != nil {
			if r.err != nil && r.err != io.EOF {
				return r.err
			}
			return status.Errorf(codes.DataLoss, "the result of job %s cannot be read: %v", id, err)
		}
		_, err = io.Copy(io.Discard, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// chunks reads the bytes of a stream's messages.
type chunks[Msg any] struct {
	s     grpc.ServerStreamingClient[Msg]
	bytes func(*Msg) []byte
	heard func()
	rest  []byte
	err   error
}

func (r *chunks[Msg]) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		var m *Msg
		if m, r.err = r.s.Recv(); r.err == nil {
			r.heard()
			r.rest = r.bytes(m)
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Logs calls each with a job's log lines; with Follow until the job has ended.
// After a loss of the coordinator it goes on where it was, as far as the next
// one has the lines.
func (c *Client) Logs(ctx context.Context, req *pb.LogsRequest, each func(*pb.LogLine) error) error {
	var last time.Time
	seen, skip := 0, 0 // lines of the time last: in all, and still to be repeated
	request := func() *pb.LogsRequest {
		if !last.IsZero() {
			skip = seen
			return &pb.LogsRequest{Id: req.Id, Chain: req.Chain, Follow: req.Follow}
		}
		return req
	}
	line := func(l *pb.LogLine) error {
		switch t := l.Time.AsTime(); {
		case t.Before(last):
			if skip > 0 {
				return nil
			}
		case t.Equal(last):
			if skip > 0 {
				skip--
				return nil
			}
			seen++
		default:
			last, seen, skip = t, 1, 0
		}
		return each(l)
	}
	return stream(ctx, c, c.cfg.Patience, !req.Follow, pb.NewJobsClient, pb.JobsClient.Logs, request, line)
}

// Draws calls each with every kept draw of a job once, ψ in the order of the
// specification, chain from 1 and index from 0, each chain's in order; with
// follow until the job has ended.
func (c *Client) Draws(ctx context.Context, id string, follow bool, each func(chain, index int, psi []float64) error) error {
	next := map[int32]int{}
	request := func() *pb.DrawsRequest { return &pb.DrawsRequest{Id: id, Follow: follow} }
	return stream(ctx, c, c.cfg.Patience, false, pb.NewJobsClient, pb.JobsClient.Draws, request, func(b *pb.DrawBatch) error {
		p := int(b.Params)
		if p <= 0 || len(b.Psi)%(8*p) != 0 || b.First < 0 {
			return fmt.Errorf("the draws of job %s are malformed: %d bytes for %d parameters", id, len(b.Psi), p)
		}
		for k := range len(b.Psi) / (8 * p) {
			index := int(b.First) + k
			if index < next[b.Chain] {
				continue // sent again after a break
			}
			if index > next[b.Chain] {
				return fmt.Errorf("the draws of job %s, chain %d, leave out those from %d to %d", id, b.Chain, next[b.Chain], index-1)
			}
			psi := make([]float64, p)
			for i := range psi {
				psi[i] = math.Float64frombits(binary.LittleEndian.Uint64(b.Psi[8*(k*p+i):]))
			}
			next[b.Chain]++
			if err := each(int(b.Chain), index, psi); err != nil {
				return err
			}
		}
		return nil
	})
}

// Interrupted reports whether an error is that of a context that was cancelled.
func Interrupted(err error) bool { return errors.Is(err, context.Canceled) }
