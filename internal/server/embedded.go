package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cluster"
	"github.com/ulisse-gp/ulisse/internal/coordinator"
	"github.com/ulisse-gp/ulisse/internal/hooks"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
	"github.com/ulisse-gp/ulisse/internal/version"
	"github.com/ulisse-gp/ulisse/internal/worker"
)

// Embedded runs one job on a cluster that is this process: a coordinator, which
// is a raft of one with its state on disk, and a worker, which speak over
// loopback as any others do.
type Embedded struct {
	Dir    string // of the state: a job that was stopped goes on from it
	Job    worker.Preloaded
	Budget *parallel.Budget
	// Certify asks for a certificate that the specification does not ask for.
	Certify bool
	// Watch, if set, is told how the run stands, as local.Config's is.
	Watch func(local.View)
	// Hooks are told of the job's end, and of stalls; nil for nobody.
	Hooks *hooks.Hooks
	// Untold, if set, is called if hooks could not be told of something in time.
	Untold func(error)
	Logger *slog.Logger
}

// Times and names of an embedded cluster.
const (
	embeddedID        = "run"
	embeddedHeartbeat = 100 * time.Millisecond // nobody else can lead
	// embeddedSuperseded is how long latent vectors are kept that no chain goes on
	// from any more: nobody makes backups.
	embeddedSuperseded = 5 * time.Second
	embeddedLine       = 64 << 10
	embeddedNotices    = 15 * time.Second // for hooks to be told of the end
)

// Run runs the job to its end and returns its run. If ctx is done first it
// returns ctx's error; called again with the same folder it goes on.
func (e Embedded) Run(ctx context.Context) (run *chains.Run, elapsed time.Duration, err error) {
	if e.Logger == nil {
		e.Logger = slog.New(slog.DiscardHandler)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, 0, err
	}
	defer lis.Close()
	dial := rpc.Dialer(nil)
	node := &replica{}
	machine := state.NewMachine()
	coord, err := coordinator.New(coordinator.Config{Node: node, Machine: machine, Dir: e.Dir, Logger: e.Logger, Dial: dial, SplitRows: -1, Hooks: e.Hooks})
	if err != nil {
		return nil, 0, err
	}
	defer coord.Close()
	opened := make(chan struct{})
	node.Node, err = cluster.Open(cluster.Config{ID: embeddedID, Dir: filepath.Join(e.Dir, "raft"), Machine: machine,
		Listener: bufconn.Listen(embeddedLine), Advertise: "embedded:1", GRPC: lis.Addr().String(), Version: version.Version, Format: state.Format,
		BootstrapExpect: 1, HeartbeatTimeout: embeddedHeartbeat, Logger: e.Logger,
		Lead: func(ctx context.Context) {
			<-opened
			coord.Lead(ctx)
		}})
	if err != nil {
		return nil, 0, err
	}
	close(opened)
	defer func() { err = errors.Join(err, node.Node.Close()) }()

	vectors, err := openLatents(e.Dir, 0, embeddedID, coord, node.members, LatentTimes{Superseded: embeddedSuperseded, Every: embeddedSuperseded}, e.Logger)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, vectors.Close()) }()
	s, _ := rpc.NewServer(nil, func(s *grpc.Server) {
		coord.Register(s)
		pb.RegisterLatentsServer(s, vectors.Latents())
	},
		grpc.UnaryInterceptor(coord.Forward), grpc.StreamInterceptor(coord.ForwardStream))
	w, err := worker.New(worker.Config{ID: embeddedID, Coordinators: []string{lis.Addr().String()}, Budget: e.Budget, Logger: e.Logger,
		Dial: dial, Preloaded: &e.Job, Open: func(context.Context, string, string) (io.ReadCloser, error) {
			return nil, errors.New("an embedded cluster has its data in memory")
		}})
	if err != nil {
		return nil, 0, err
	}
	work, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer s.Stop()
	wg.Go(func() { s.Serve(lis) })
	wg.Go(func() { vectors.Sync(work) })
	id, err := e.submit(ctx, coord)
	if err != nil {
		return nil, 0, err
	}
	wg.Go(func() { w.Run(work) })
	err = coord.Follow(ctx, id, func(f *state.Follower) (bool, error) {
		elapsed = f.Job.Elapsed(time.Now())
		if f.Job.Phase == state.Failed {
			return false, errors.New(f.Job.Message)
		}
		if f.Run == nil {
			return false, nil
		}
		if f.Run.Phase != chains.Preparing && e.Watch != nil {
			e.Watch(local.View{Run: f.Run, Convergence: f.Convergence, Elapsed: elapsed})
		}
		run = f.Run
		return f.Job.Phase.Ended(), nil
	})
	if e.Hooks != nil && ctx.Err() == nil {
		telling, stop := context.WithTimeout(ctx, embeddedNotices)
		defer stop()
		if late := coord.AwaitNotices(telling); late != nil && e.Untold != nil {
			e.Untold(late)
		}
	}
	return run, elapsed, err
}

// submit submits the job, or finds it where it was left.
func (e *Embedded) submit(ctx context.Context, coord *coordinator.Coordinator) (string, error) {
	text, err := e.Job.Spec.YAML()
	if err != nil {
		return "", err
	}
	for { // until the node leads, which takes it a moment
		j, err := e.take(ctx, coord, string(text))
		if err == nil && e.Certify {
			e.Certify = false
			j, err = coord.Jobs().Extend(ctx, &pb.ExtendRequest{Id: j.Id, Certify: true})
		}
		switch {
		case err == nil:
			return j.Id, nil
		case ctx.Err() != nil: // whether it was taken shows when the folder is opened again
			return "", ctx.Err()
		case !errors.Is(err, cluster.ErrNotLeader) && status.Code(err) != codes.Unavailable:
			return "", errors.New(status.Convert(err).Message())
		}
		select {
		case <-time.After(embeddedHeartbeat / 10):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// take submits the job, or, if there is one, lets it go on to what the specification says now.
func (e *Embedded) take(ctx context.Context, coord *coordinator.Coordinator, spec string) (*pb.Job, error) {
	list, err := coord.Jobs().List(ctx, &pb.ListJobsRequest{})
	if err != nil {
		return nil, err
	}
	if len(list.Jobs) == 0 {
		return coord.Jobs().Submit(ctx, &pb.SubmitRequest{Spec: spec, ClientId: embeddedID})
	}
	j := list.Jobs[0]
	if j.State == pb.JobState_JOB_STATE_FAILED {
		if j, err = coord.Jobs().Resume(ctx, &pb.JobActionRequest{Id: j.Id}); err != nil { // maybe its cause is gone
			return nil, err
		}
	}
	if j.Spec == spec {
		return j, nil
	}
	return coord.Jobs().Extend(ctx, &pb.ExtendRequest{Id: j.Id, Spec: spec})
}
