package dashboard

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// fake is a cluster of jobs that a test makes up.
type fake struct {
	pb.UnimplementedJobsServer
	pb.UnimplementedWorkersServer
	pb.UnimplementedClusterServer
	pb.UnimplementedHistoryServer
	pb.UnimplementedPredictionsServer
	mu       sync.Mutex
	jobs     []*pb.Job
	draws    map[string][][]float64 // by chain: draw by draw
	changed  chan struct{}
	watching int
	fail     error // of every action
	did      []string
	handed   []*pb.SubmitRequest  // submitted
	asked    []*pb.PredictRequest // predicted
	written  []*pb.AnnotateRequest
	lines    []*pb.LogLine
	sums     map[string]report.Summary // of jobs that have one of their own
}

const fakeSpec = "name: x\ndata: {path: a.csv, target: y}\nmodel: {kernel: rbf}\nsampler: {chains: 2, warmup: 50}\n"

// add makes a job with draws of three parameters.
func (f *fake) add(id, name string, state pb.JobState, chains, draws int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := &pb.Job{Id: id, Name: name, State: state, Spec: fakeSpec, Submitted: timestamppb.Now(), Owner: "ada",
		Data: &pb.DataInfo{N: 1030, D: 8, Target: "y"}, Progress: &pb.Progress{Draws: 400, MaxDraws: 4000, Rhat: 1.0123, Ess: 321, ActiveSeconds: 60, Step: 0.8, Probes: 4, NoiseBudget: 0.4,
			Warmup: 50, EtaSeconds: 90, RhatWanted: 1.01, EssWanted: 400, LargestError: 0.061, ErrorWanted: 0.05, Parameters: []string{"sigma", "tau", "lambda"}}}
	for c := range chains {
		j.Progress.Chains = append(j.Progress.Chains, &pb.ChainProgress{Chain: int32(c + 1), Warmup: 50, Worker: "w1", SolverIterations: 9})
		f.draws[key(id, c)] = nil
	}
	f.jobs = append([]*pb.Job{j}, f.jobs...)
	f.grow(j, draws)
}

func key(id string, chain int) string { return id + "/" + string(rune('a'+chain)) }

// grow lets a job draw more. f.mu is held.
func (f *fake) grow(j *pb.Job, n int) {
	for c, p := range j.Progress.Chains {
		r := rand.New(rand.NewPCG(1, uint64(c)))
		x := f.draws[key(j.Id, c)]
		for range n {
			x = append(x, []float64{r.NormFloat64(), r.NormFloat64(), r.NormFloat64()})
		}
		f.draws[key(j.Id, c)] = x
		p.Draws += int32(n)
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// change changes a job.
func (f *fake) change(id string, do func(*pb.Job), more int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.jobs {
		if j.Id == id {
			do(j)
			f.grow(j, more)
		}
	}
}

func (f *fake) get(id string) (*pb.Job, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.jobs {
		if j.Id == id {
			return proto.Clone(j).(*pb.Job), f.changed, nil
		}
	}
	return nil, nil, status.Errorf(codes.NotFound, "there is no job %q", id)
}

func (f *fake) Get(_ context.Context, r *pb.GetJobRequest) (*pb.Job, error) {
	j, _, err := f.get(r.Id)
	return j, err
}

func (f *fake) List(_ context.Context, r *pb.ListJobsRequest) (*pb.ListJobsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &pb.ListJobsResponse{}
	for _, j := range f.jobs {
		if !slices.ContainsFunc(r.Tags, func(tag string) bool { return !slices.Contains(j.Tags, tag) }) && strings.Contains(j.Name, r.Name) && (len(r.States) == 0 || slices.Contains(r.States, j.State)) {
			out.Jobs = append(out.Jobs, proto.Clone(j).(*pb.Job))
		}
	}
	return out, nil
}

func (f *fake) Watch(r *pb.WatchRequest, s grpc.ServerStreamingServer[pb.Job]) error {
	f.mu.Lock()
	f.watching++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.watching--
		f.mu.Unlock()
	}()
	for {
		j, changed, err := f.get(r.Id)
		if err != nil {
			return err
		}
		if err := s.Send(j); err != nil || client.Ended(j.State) {
			return err
		}
		select {
		case <-changed:
		case <-s.Context().Done():
			return nil
		}
	}
}

func (f *fake) Draws(r *pb.DrawsRequest, s grpc.ServerStreamingServer[pb.DrawBatch]) error {
	sent := map[int]int{}
	for {
		j, changed, err := f.get(r.Id)
		if err != nil {
			return err
		}
		for c := range j.Progress.Chains {
			f.mu.Lock()
			more := f.draws[key(r.Id, c)][sent[c]:]
			f.mu.Unlock()
			for batch := range slices.Chunk(more, 500) {
				b := &pb.DrawBatch{Chain: int32(c + 1), First: int32(sent[c]), Params: 3}
				for _, psi := range batch {
					for _, v := range psi {
						b.Psi = binary.LittleEndian.AppendUint64(b.Psi, math.Float64bits(v))
					}
				}
				if err := s.Send(b); err != nil {
					return err
				}
				sent[c] += len(batch)
			}
		}
		if !r.Follow || client.Ended(j.State) {
			return nil
		}
		select {
		case <-changed:
		case <-s.Context().Done():
			return nil
		}
	}
}

func (f *fake) Summary(_ context.Context, r *pb.GetJobRequest) (*pb.SummaryResponse, error) {
	sum := report.Summary{Parameters: []report.Parameter{{Name: "sigma", Mean: 1.5, SD: 0.3, RHat: 1.2}}, Warnings: []string{"R-hat of sigma is 1.2: run longer"}}
	f.mu.Lock()
	if s, ok := f.sums[r.Id]; ok {
		sum = s
	}
	f.mu.Unlock()
	text, err := json.Marshal(sum)
	return &pb.SummaryResponse{Json: string(text)}, err
}

func (f *fake) Logs(r *pb.LogsRequest, s grpc.ServerStreamingServer[pb.LogLine]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.lines {
		if err := s.Send(l); err != nil {
			return err
		}
	}
	return nil
}

func (f *fake) act(what string, id string) (*pb.Job, error) {
	f.mu.Lock()
	f.did = append(f.did, what+" "+id)
	err := f.fail
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	j, _, err := f.get(id)
	return j, err
}

func (f *fake) Pause(_ context.Context, r *pb.JobActionRequest) (*pb.Job, error) {
	f.change(r.Id, func(j *pb.Job) { j.State = pb.JobState_JOB_STATE_PAUSED }, 0)
	return f.act("pause", r.Id)
}
func (f *fake) Resume(_ context.Context, r *pb.JobActionRequest) (*pb.Job, error) {
	return f.act("resume", r.Id)
}
func (f *fake) Cancel(_ context.Context, r *pb.JobActionRequest) (*pb.Job, error) {
	return f.act("cancel", r.Id)
}
func (f *fake) Extend(_ context.Context, r *pb.ExtendRequest) (*pb.Job, error) {
	return f.act("extend", r.Id)
}

// Validate reads the specification, and knows no quotas.
func (f *fake) Validate(_ context.Context, r *pb.SubmitRequest) (*pb.ValidateResponse, error) {
	_, err := job.ParseString(r.Spec)
	var wrong *job.FieldError
	if errors.As(err, &wrong) {
		return &pb.ValidateResponse{Mistakes: []*pb.Mistake{{Field: "spec." + wrong.Path, Message: wrong.Msg, Line: int32(wrong.Line), Column: int32(wrong.Column)}}}, nil
	}
	return &pb.ValidateResponse{Spec: r.Spec}, err
}

func (f *fake) Submit(_ context.Context, r *pb.SubmitRequest) (*pb.Job, error) {
	f.mu.Lock()
	f.handed = append(f.handed, r)
	err := f.fail
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	f.add("new", "submitted", pb.JobState_JOB_STATE_QUEUED, 2, 0)
	j, _, err := f.get("new")
	return j, err
}

func (f *fake) Annotate(_ context.Context, r *pb.AnnotateRequest) (*pb.Job, error) {
	f.mu.Lock()
	f.written = append(f.written, r)
	f.mu.Unlock()
	return f.act("annotate", r.Id)
}

// Predict answers the sum of a row's inputs, ± 2.
func (f *fake) Predict(r *pb.PredictRequest, s grpc.ServerStreamingServer[pb.PredictResponse]) error {
	f.mu.Lock()
	f.asked = append(f.asked, r)
	err := f.fail
	f.mu.Unlock()
	if err != nil {
		return err
	}
	out := &pb.PredictResponse{Stats: &pb.PredictStats{Draws: 10}, DrawsSha256: "x"}
	for i, p := range r.Rows {
		sum := 0.0
		for _, x := range p.Inputs {
			sum += x
		}
		row := &pb.PredictedRow{Mean: sum, Sd: 1, Quantiles: []float64{sum - 2, sum, sum + 2}}
		if r.Terms {
			row.Terms = []*pb.PredictedTerm{{Name: "trend", Mean: p.Inputs[0], Sd: 1}, {Name: "season", Mean: p.Inputs[1], Sd: 2}}
		}
		if len(r.Targets) > 0 {
			pit := r.Targets[i]
			row.LogDensity, row.Crps, row.Pit = &pit, &pit, &pit
		}
		out.Rows = append(out.Rows, row)
	}
	return s.Send(out)
}

// dataFake answers for data sets, whose List is not that of jobs.
type dataFake struct{ pb.UnimplementedDataServer }

func (dataFake) List(context.Context, *pb.ListBlobsRequest) (*pb.ListBlobsResponse, error) {
	return &pb.ListBlobsResponse{Blobs: []*pb.Blob{
		{Sha256: "aaaaaaaaaaaa", Size: 1000, Complete: true, Stored: timestamppb.New(time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC))},
		{Sha256: "bbbbbbbbbbbb", Size: 2000, Complete: true, Jobs: []string{"j1"}, Stored: timestamppb.New(time.Date(2026, 5, 6, 7, 8, 0, 0, time.UTC))},
		{Sha256: "cccccccccccc", Size: 3000, Present: 10}}}, nil
}

func (f *fake) Run(_ context.Context, r *pb.RunHistoryRequest) (*pb.RunHistory, error) {
	if j, _, err := f.get(r.Id); err != nil || client.MinDraws(j.Progress) == 0 {
		return &pb.RunHistory{}, err
	}
	h := &pb.RunHistory{Tolerance: 1e-6, Windows: []*pb.TunedWindow{{Window: 0, Step: 0.8, Probes: 4, NoiseBudget: 0.4}}}
	for c := range 2 {
		h.Chains = append(h.Chains, &pb.ChainCourse{Chain: int32(c + 1), Iteration: []int32{10, 20}, SolverIterations: []float64{9, 8}, Residual: []float64{1e-7, 0},
			NoiseRatio: []float64{0.5, 0}, Seconds: []float64{0.1, 0.2}, Unconverged: []int32{0, 0}})
	}
	h.Notes = []*pb.JobNote{{Time: timestamppb.Now(), Kind: "placed", Text: "chain 1 on <b>w1</b>"}}
	return h, nil
}

// workersFake answers for workers, whose List is not that of jobs.
type workersFake struct{ pb.UnimplementedWorkersServer }

func (workersFake) List(context.Context, *pb.ListWorkersRequest) (*pb.ListWorkersResponse, error) {
	return &pb.ListWorkersResponse{Workers: []*pb.Worker{
		{Id: "w1", Address: "10.0.0.1:7010", Connected: true, Capacity: &pb.Capacity{Cores: 8, InstructionSet: "avx2"}, Joined: timestamppb.Now(), LastSeen: timestamppb.Now(),
			Load: &pb.Load{BytesSent: 2e9}, Driving: []*pb.Placement{{Job: "j1", Chain: 1}}},
		{Id: "w2", Capacity: &pb.Capacity{Cores: 4}}}}, nil
}

func (f *fake) Workers(context.Context, *pb.WorkersHistoryRequest) (*pb.WorkersHistory, error) {
	now := time.Now()
	at := func(s int) *timestamppb.Timestamp { return timestamppb.New(now.Add(time.Duration(s) * time.Second)) }
	return &pb.WorkersHistory{Since: at(-100), Events: []*pb.WorkerEvent{{Time: at(-90), Worker: "w1", Kind: "joined"}, {Time: at(-80), Worker: "w2", Kind: "joined"}, {Time: at(-10), Worker: "w2", Kind: "lost"}},
		Workers: []*pb.WorkerCourse{{Worker: "w1", Time: []*timestamppb.Timestamp{at(-10), at(-5)}, PairsPerSecond: []float64{1e9, 3e9}, Busy: []float64{2, 3}}}}, nil
}

func (f *fake) Members(context.Context, *pb.MembersRequest) (*pb.MembersResponse, error) {
	return &pb.MembersResponse{Leader: "c1", Term: 7, Members: []*pb.ClusterMember{
		{Id: "c1", Voter: true, Leader: true, Healthy: true, AppliedIndex: 12}, {Id: "c2", Voter: true, Healthy: true, Lag: 1, ContactSeconds: 0.2},
		{Id: "c3", Voter: true, ContactSeconds: -1}}}, nil
}

// start serves a fake cluster and returns a connection to it.
func start(t testing.TB) (*fake, *grpc.ClientConn) {
	t.Helper()
	f := &fake{draws: map[string][][]float64{}, changed: make(chan struct{})}
	lis := bufconn.Listen(1 << 20)
	s := grpc.NewServer()
	pb.RegisterJobsServer(s, f)
	pb.RegisterWorkersServer(s, workersFake{})
	pb.RegisterClusterServer(s, f)
	pb.RegisterHistoryServer(s, f)
	pb.RegisterPredictionsServer(s, f)
	pb.RegisterDataServer(s, dataFake{})
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:fake", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		<-done
	})
	return f, conn
}

// psi returns draws t of the parameters t and −t.
func psi(first, n int) []byte {
	var out []byte
	for t := first; t < first+n; t++ {
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(float64(t)))
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(-float64(t)))
	}
	return out
}
