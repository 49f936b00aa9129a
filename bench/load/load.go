package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/dev"
	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// load says how much of everything.
type load struct {
	rate                       int
	time                       time.Duration
	watchers, workers, hostile int
}

const coordinators = 3

const spec = `
name: load
data: {synthetic: {n: 100, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 1}}
sampler: {chains: 2, warmup: 40, draws: 50}
stop: {max_draws: 50}
`

// result is what came of it.
type result struct {
	took                          []time.Duration // by submissions that were acknowledged
	late                          time.Duration   // of the last submission, behind the rate
	refused, lost, twice          int
	seen                          int64   // messages that watchers received
	watching                      int     // watches that were open at the end
	memory                        []int64 // resident, most, of each coordinator, bytes
	firstMemory                   []int64 // before
	hostileServed, hostileRefused int64
}

func (r *result) String() string {
	slices.Sort(r.took)
	at := func(q float64) time.Duration {
		if len(r.took) == 0 {
			return 0
		}
		return r.took[int(q*float64(len(r.took)-1))].Round(100 * time.Microsecond)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "acknowledged %d, not %d; lost %d, twice %d\n", len(r.took), r.refused, r.lost, r.twice)
	fmt.Fprintf(&b, "a submission took: median %v, p99 %v, most %v; the last was %v behind the rate\n", at(0.5), at(0.99), at(1), r.late.Round(time.Millisecond))
	fmt.Fprintf(&b, "watches open at the end %d, messages %d\n", r.watching, r.seen)
	fmt.Fprintf(&b, "hostile calls refused %d, served %d\n", r.hostileRefused, r.hostileServed)
	for i, m := range r.memory {
		fmt.Fprintf(&b, "coordinator %d: resident %d MB before, %d MB at most\n", i, r.firstMemory[i]>>20, m>>20)
	}
	return b.String()
}

// verdict returns an error if an acknowledged job is not there.
func (r *result) verdict() error {
	if r.lost > 0 || r.twice > 0 || r.hostileServed > 0 {
		return fmt.Errorf("%d jobs are lost, %d there twice, and %d hostile calls were served", r.lost, r.twice, r.hostileServed)
	}
	return nil
}

// run runs a cluster under load.
func (l *load) run(ctx context.Context, binary, dir string) (*result, error) {
	ctx, cancel := context.WithCancel(ctx)
	ready := make(chan []dev.Process, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- dev.Run(ctx, dev.Config{Dir: filepath.Join(dir, "cluster"), Binary: binary, Coordinators: coordinators,
			CoordinatorArgs: []string{"--rate", "0", "--streams", "0", "--disk-reserve", "1"}}, func(p []dev.Process) { ready <- p })
	}()
	defer func() { cancel(); <-ended }()
	var procs []dev.Process
	select {
	case procs = <-ready:
	case err := <-ended:
		ended <- nil
		return nil, errors.Join(err, errors.New("the cluster did not start"))
	}
	var conns []*grpc.ClientConn
	for _, p := range procs {
		conn, err := rpc.Dialer(nil)(p.Addresses.GRPC)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	r := &result{memory: make([]int64, len(procs)), firstMemory: make([]int64, len(procs))}
	work, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for i := range l.workers {
		wg.Go(func() { idle(work, conns, fmt.Sprint("w", i)) })
	}
	first, err := submitOne(ctx, conns[0], "first")
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		first, err = submitOne(ctx, conns[0], "first")
	}
	if err != nil {
		return nil, err
	}
	for i, p := range procs {
		r.firstMemory[i] = resident(p.PID)
	}
	var watching, seen, served, refused atomic.Int64
	for i := range l.watchers {
		wg.Go(func() { watch(work, conns[i%len(conns)], first, &watching, &seen) })
	}
	for i := range l.hostile {
		wg.Go(func() { misbehave(work, conns[i%len(conns)], i, &served, &refused) })
	}
	wg.Go(func() {
		for work.Err() == nil {
			for i, p := range procs {
				r.memory[i] = max(r.memory[i], resident(p.PID))
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	acknowledged := l.submit(ctx, conns, r)
	r.watching, r.seen = int(watching.Load()), seen.Load()
	r.hostileServed, r.hostileRefused = served.Load(), refused.Load()
	return r, r.check(ctx, conns[1], acknowledged)
}

// submit submits at the rate, each job at another coordinator than the one
// before, and returns the ids of those that were acknowledged.
func (l *load) submit(ctx context.Context, conns []*grpc.ClientConn, r *result) map[string]bool {
	ids := map[string]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	n := int(l.time.Seconds() * float64(l.rate))
	start := time.Now()
	for i := range n {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(l.rate))
		time.Sleep(time.Until(due))
		r.late = time.Since(due)
		wg.Go(func() {
			began := time.Now()
			id, err := submitOne(ctx, conns[i%len(conns)], fmt.Sprint("client-", i))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.refused++
				return
			}
			ids[id] = true
			r.took = append(r.took, time.Since(began))
		})
	}
	wg.Wait()
	return ids
}

func submitOne(ctx context.Context, conn *grpc.ClientConn, clientID string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	j, err := pb.NewJobsClient(conn).Submit(ctx, &pb.SubmitRequest{Spec: spec, ClientId: clientID})
	return j.GetId(), err
}

// check looks for the jobs that were acknowledged.
func (r *result) check(ctx context.Context, conn *grpc.ClientConn, want map[string]bool) error {
	found := map[string]int{}
	req := &pb.ListJobsRequest{PageSize: 1000}
	for {
		page, err := pb.NewJobsClient(conn).List(ctx, req)
		if err != nil {
			return fmt.Errorf("listing the jobs afterwards: %w", err)
		}
		for _, j := range page.Jobs {
			found[j.Id]++
		}
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			break
		}
	}
	for id := range want {
		switch found[id] {
		case 0:
			r.lost++
		case 1:
		default:
			r.twice++
		}
	}
	return nil
}

// idle is a worker that is connected, beats, and does nothing.
func idle(ctx context.Context, conns []*grpc.ClientConn, id string) {
	for i := rand.IntN(len(conns)); ctx.Err() == nil; i++ {
		s, err := pb.NewWorkersClient(conns[i%len(conns)]).Connect(ctx)
		if err == nil {
			hello := &pb.Hello{Id: id, Address: "127.0.0.1:1", Capacity: &pb.Capacity{Cores: 1, InstructionSet: "portable"}}
			err = s.Send(&pb.WorkerMessage{Message: &pb.WorkerMessage_Hello{Hello: hello}})
		}
		if err == nil {
			beat(ctx, s)
		}
		select {
		case <-time.After(100 * time.Millisecond): // not the leader, or it was lost
		case <-ctx.Done():
		}
	}
}

func beat(ctx context.Context, s grpc.BidiStreamingClient[pb.WorkerMessage, pb.CoordinatorMessage]) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			if _, err := s.Recv(); err != nil {
				return
			}
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return
		case <-ctx.Done():
			<-gone
			return
		case <-tick.C:
			_ = s.Send(&pb.WorkerMessage{Message: &pb.WorkerMessage_Beat{Beat: &pb.Beat{Load: &pb.Load{}}}}) // Recv tells
		}
	}
}

// watch watches a job for as long as the test takes.
func watch(ctx context.Context, conn *grpc.ClientConn, id string, open, seen *atomic.Int64) {
	for ctx.Err() == nil {
		s, err := pb.NewJobsClient(conn).Watch(ctx, &pb.WatchRequest{Id: id})
		if err != nil {
			continue
		}
		open.Add(1)
		for err == nil {
			if _, err = s.Recv(); err == nil {
				seen.Add(1)
			}
		}
		open.Add(-1)
	}
}

// misbehave sends more than may be sent, or begins what it does not go on with.
func misbehave(ctx context.Context, conn *grpc.ClientConn, kind int, served, refused *atomic.Int64) {
	for ctx.Err() == nil {
		var err error
		if kind%2 == 0 {
			_, err = pb.NewJobsClient(conn).Submit(ctx, &pb.SubmitRequest{Spec: strings.Repeat("# ", rpc.MaxMessage/2-1000)}, grpc.MaxCallSendMsgSize(2*rpc.MaxMessage))
		} else {
			slow, cancel := context.WithTimeout(ctx, 5*time.Second)
			var s grpc.ClientStreamingClient[pb.UploadChunk, pb.Blob]
			if s, err = pb.NewDataClient(conn).Upload(slow); err == nil { // and says no more
				err = s.RecvMsg(&pb.Blob{})
			}
			cancel()
		}
		switch {
		case ctx.Err() != nil:
		case err == nil:
			served.Add(1)
		case status.Code(err) != codes.Unavailable:
			refused.Add(1)
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// resident returns the memory of a process, where the system tells it; else 0.
func resident(pid int) int64 {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64) // 0 says that it is not known
	return pages * int64(os.Getpagesize())
}
