package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/coordinator/coordinatortest"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/state"
	"github.com/ulisse-gp/ulisse/internal/version"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// served is a coordinator that answers calls.
type served struct {
	*Coordinator
	t           *testing.T
	node        *coordinatortest.Node
	conn        *grpc.ClientConn
	address     string
	jobs        pb.JobsClient
	workers     pb.WorkersClient
	users       pb.UsersClient
	predictions pb.PredictionsClient
	history     pb.HistoryClient
}

// serve runs a coordinator until the test ends. Without a node in cfg it has one
// of its own, which leads.
func serve(t *testing.T, cfg Config) *served {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dial := rpc.Dialer(nil)
	if cfg.Node == nil {
		cfg.Node = coordinatortest.NewNode(t)
	}
	if n, ok := cfg.Node.(*coordinatortest.Node); ok {
		cfg.Machine = n.Machine()
		if n.IsLeader() {
			n.Lead(lis.Addr().String())
		}
	}
	cfg.Dir, cfg.Dial = t.TempDir(), dial
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g, _ := rpc.NewServer(nil, func(s *grpc.Server) { c.Register(s) }, grpc.UnaryInterceptor(c.Forward), grpc.StreamInterceptor(c.ForwardStream))
	conn, err := dial(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- g.Serve(lis) }()
	t.Cleanup(func() {
		conn.Close()
		g.Stop()
		<-done
		c.Close()
	})
	node, _ := cfg.Node.(*coordinatortest.Node)
	if b, ok := cfg.Node.(*broken); ok {
		node = b.Node
		if node.IsLeader() {
			node.Lead(lis.Addr().String())
		}
	}
	return &served{Coordinator: c, t: t, node: node, conn: conn, address: lis.Addr().String(), jobs: pb.NewJobsClient(conn), workers: pb.NewWorkersClient(conn),
		users: pb.NewUsersClient(conn), predictions: pb.NewPredictionsClient(conn), history: pb.NewHistoryClient(conn)}
}

// lead lets the coordinator decide, until the test ends or stop is called.
func (s *served) lead() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Lead(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	s.t.Cleanup(stop)
	return stop
}

// keep applies commands at the epoch.
func keep(t testing.TB, c *Coordinator, cmds ...state.Command) { keepAt(t, c, epoch, cmds...) }

func keepAt(t testing.TB, c *Coordinator, at time.Time, cmds ...state.Command) {
	t.Helper()
	for _, cmd := range cmds {
		text, err := state.Encode(at, cmd)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.node.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
}

func within(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// wantCode checks the code of an error, and what its message says.
func wantCode(t *testing.T, what string, err error, code codes.Code, words ...string) {
	t.Helper()
	s := status.Convert(err)
	if s.Code() != code {
		t.Errorf("%s: %v, want %v", what, err, code)
	}
	for _, w := range words {
		if !strings.Contains(s.Message(), w) {
			t.Errorf("%s: %q does not say %q", what, s.Message(), w)
		}
	}
}

// params is the number of parameters of the tests' jobs.
const params = 3

// testSpec is a job of two chains that ends after a number of draws of each if they
// are worth as many as ess, else at maxDraws.
func testSpec(draws, maxDraws int, ess float64) string {
	return fmt.Sprintf(`
name: test
data: {path: /data/table.csv, target: y}
sampler: {method: fisher, chains: 2, warmup: 10, draws: %d, checkpoint: 5}
solver: {method: cg}
stop: {rhat: 1.2, ess: %g, max_draws: %d}
`, draws, ess, maxDraws)
}

// never is a size that is not reached.
const never = 1e9

func testInfo() *dataset.Info {
	one := dataset.Scale{SD: 1}
	return &dataset.Info{Rows: 40, Target: "y", InputNames: []string{"a", "b"}, XScale: []dataset.Scale{one, one}, YScale: one, SHA256: strings.Repeat("ab", 32)}
}

func diagonal(x float64) []float64 {
	out := make([]float64, params*params)
	for i := range params {
		out[i*params+i] = x
	}
	return out
}

func testPreparation() *chains.Prepared {
	psi := make([]float64, params)
	return &chains.Prepared{Psi: psi, Starts: [][]float64{psi, psi}, Cov: diagonal(1), ProbeCov: diagonal(0.01)}
}

// draw is the draw of a chain at an iteration: independent standard normals.
func draw(chain, iter int) []float64 {
	r := rand.New(rand.NewPCG(uint64(chain), uint64(iter)))
	return []float64{r.NormFloat64(), r.NormFloat64(), r.NormFloat64()}
}

// checkpointOf carries out a task with those draws.
func checkpointOf(t *chains.Task) *chains.Checkpoint {
	k := &chains.Checkpoint{Chain: t.Chain, FromIter: t.From.Iter, State: chains.State{Iter: t.From.Iter + t.Iterations},
		Cost: chains.Cost{Gradients: t.Iterations, Solves: 4 * t.Iterations, Iterations: 40 * t.Iterations, Seconds: 0.5}}
	for i := range t.Iterations {
		k.Draws = append(k.Draws, draw(t.Chain, t.From.Iter+i+1))
	}
	k.State.Psi = slices.Clone(k.Draws[len(k.Draws)-1])
	if t.Warmup {
		k.Stats = chains.Stats{Spreads: t.Iterations, ProbeCov: diagonal(0.01 * float64(t.Iterations))}
	}
	return k
}

// referenceRun is the run of a job as its events make it, apart from any
// coordinator, to a number of draws of each chain.
func referenceRun(t *testing.T, text string, draws int) *chains.Run {
	t.Helper()
	spec, err := job.ParseString(text)
	if err != nil {
		t.Fatal(err)
	}
	m, err := spec.KernelModel(testInfo())
	if err != nil {
		t.Fatal(err)
	}
	r := chains.New(spec.Plan(m.Names(), testInfo().N()))
	apply := func(e chains.Event) {
		t.Helper()
		if err := r.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	apply(chains.Event{Prepared: testPreparation()})
	for r.MinDraws() < draws {
		if r.AtBarrier() {
			e, err := sampler.Adapt(r)
			if err != nil {
				t.Fatal(err)
			}
			apply(*e)
		}
		for c := range r.Chains {
			if task, ok := r.Task(c + 1); ok && len(r.Chains[c].Draws) < draws {
				apply(chains.Event{Checkpoint: checkpointOf(&task)})
			}
		}
	}
	return r
}

// testWorker is a worker without numerics: what it computes is what draw says.
type testWorker struct {
	t       *testing.T
	id      string
	workers pb.WorkersClient
	stream  grpc.BidiStreamingClient[pb.WorkerMessage, pb.CoordinatorMessage]
	cancel  context.CancelFunc
	ended   chan error // of the session
	told    chan *pb.CoordinatorMessage
	isa     string // what it computes with
	// adapt, if set, computes settings: its own arithmetic.
	adapt func(*chains.Run) (*chains.Event, error)
	lies  bool // about what it computes again
	rows  int  // of the data; 0 for those of testInfo
}

// connect begins a session. What the worker is told comes out of told.
func connect(t *testing.T, workers pb.WorkersClient, h *pb.Hello) *testWorker {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := workers.Connect(ctx)
	if err == nil {
		err = stream.Send(&pb.WorkerMessage{Message: &pb.WorkerMessage_Hello{Hello: h}})
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &testWorker{t: t, id: h.Id, workers: workers, stream: stream, cancel: cancel, ended: make(chan error, 1), told: make(chan *pb.CoordinatorMessage, 100),
		isa: h.Capacity.GetInstructionSet()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := stream.Recv()
			if err != nil {
				w.ended <- err
				return
			}
			w.told <- m
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

// hello is how a worker of two cores introduces itself.
func hello(id string) *pb.Hello {
	return &pb.Hello{Id: id, Address: id + ":1", Version: version.Version, Capacity: &pb.Capacity{Cores: 2, InstructionSet: "avx2", PairsPerSecond: 1e9}}
}

// next returns what the worker is told next.
func (w *testWorker) next() *pb.CoordinatorMessage {
	w.t.Helper()
	select {
	case m := <-w.told:
		return m
	case err := <-w.ended:
		w.t.Fatalf("%s: the session ended: %v", w.id, err)
	case <-time.After(time.Minute):
		w.t.Fatalf("%s is told nothing for a minute", w.id)
	}
	return nil
}

// nextDrive waits for a placement.
func (w *testWorker) nextDrive() *pb.Placement {
	w.t.Helper()
	for {
		if p := w.next().GetDrive().GetPlacement(); p != nil {
			return p
		}
	}
}

func (w *testWorker) send(m *pb.WorkerMessage) {
	w.t.Helper()
	if err := w.stream.Send(m); err != nil && err != io.EOF {
		w.t.Error(err)
	}
}

func (w *testWorker) beat(b *pb.Beat) {
	w.send(&pb.WorkerMessage{Message: &pb.WorkerMessage_Beat{Beat: b}})
}

func (w *testWorker) release(p *pb.Placement) {
	w.send(&pb.WorkerMessage{Message: &pb.WorkerMessage_Release{Release: &pb.Release{Job: p.Job, Chain: p.Chain, Attempt: p.Attempt}}})
}

// await asks what to do until there is something: nil means to tell what the data
// are.
func (w *testWorker) await(ctx context.Context, p *pb.Placement) (*chains.Work, error) {
	for {
		r, err := w.workers.Await(ctx, &pb.AwaitRequest{Job: p.Job, Chain: p.Chain, Attempt: p.Attempt, Secret: p.Secret})
		switch {
		case err != nil:
			return nil, err
		case r.Assignment == nil:
		case r.Assignment.Work == nil:
			return nil, nil
		default:
			return chains.WorkOf(r.Assignment.Work)
		}
	}
}

// awaitTask asks for a chain's next task.
func (w *testWorker) awaitTask(ctx context.Context, p *pb.Placement) (*chains.Task, error) {
	work, err := w.await(ctx, p)
	if err != nil {
		return nil, err
	}
	return work.Advance, nil
}

// report hands in events.
func (w *testWorker) report(ctx context.Context, p *pb.Placement, events ...chains.Event) error {
	r := &pb.ReportRequest{Job: p.Job, Chain: p.Chain, Attempt: p.Attempt, Secret: p.Secret, Worker: w.id}
	for i := range events {
		text, err := events[i].Encode()
		if err != nil {
			return err
		}
		r.Events = append(r.Events, text)
	}
	_, err := w.workers.Report(ctx, r)
	return err
}

// loaded tells what the data are.
func (w *testWorker) loaded(ctx context.Context, p *pb.Placement) error {
	info := testInfo()
	info.Rows = cmp.Or(w.rows, info.Rows)
	_, err := w.workers.Report(ctx, &pb.ReportRequest{Job: p.Job, Attempt: p.Attempt, Secret: p.Secret, Worker: w.id,
		Loaded: &pb.Loaded{Data: info.Wire(""), InstructionSet: w.isa}})
	return err
}

// prepare does what the driver of lane 0 does first.
func (w *testWorker) prepare(ctx context.Context, p *pb.Placement) error {
	for {
		work, err := w.await(ctx, p)
		switch {
		case err != nil:
			return err
		case work != nil:
			return w.report(ctx, p, chains.Event{Prepared: testPreparation()})
		}
		if err := w.loaded(ctx, p); err != nil {
			return err
		}
	}
}

// drive carries out a placement until it is fenced off, revoked or at its end.
func (w *testWorker) drive(ctx context.Context, p *pb.Placement, revoked <-chan struct{}) {
	defer w.release(p)
	idle, cancel := context.WithCancel(ctx) // a revoked driver waits no more
	defer cancel()
	go func() {
		select {
		case <-revoked:
			cancel()
		case <-idle.Done():
		}
	}()
	for {
		work, err := w.await(idle, p)
		if err != nil || work == nil && w.loaded(ctx, p) != nil {
			return
		}
		if work == nil {
			continue
		}
		e, err := w.eventOf(work)
		if err != nil {
			w.t.Error(err)
			return
		}
		if w.report(ctx, p, e) != nil {
			return
		}
	}
}

// eventOf carries out some work.
func (w *testWorker) eventOf(work *chains.Work) (chains.Event, error) {
	e := chains.Event{Certificate: work.Certificate}
	switch {
	case work.Prepare != nil && work.Prepare.From != nil: // of the certificate
		prep := *work.Prepare.From
		e.Prepared = &prep
	case work.Prepare != nil:
		e.Prepared = testPreparation()
	case work.Adapt != nil:
		got, err := w.adapt(work.Adapt.Run())
		if err != nil {
			return e, err
		}
		e.Settings = got.Settings
	case work.Weigh != nil:
		e.Provisional = &chains.Provisional{LogDensities: make([]float64, chains.ProvisionalDraws)}
	default:
		e.Checkpoint = checkpointOf(work.Advance)
	}
	return e, nil
}

// answer computes again what a driver has computed; who lies tells of other numbers.
func (w *testWorker) answer(c *pb.Check) {
	work, err := chains.WorkOf(c.Assignment.Work)
	if err != nil {
		w.t.Error(err)
		return
	}
	e, err := w.eventOf(work)
	if err != nil {
		w.t.Error(err)
	}
	sum, err := e.Sum()
	if err != nil {
		w.t.Error(err)
	}
	if w.lies {
		sum = "not " + sum
	}
	w.send(&pb.WorkerMessage{Message: &pb.WorkerMessage_Checked{Checked: &pb.Checked{Number: c.Number, Sha256: sum}}})
}

// work does what it is told until the session ends. Each checkpoint is followed by
// a pause of that length.
func (w *testWorker) work() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer wg.Wait()
		defer cancel()
		driving := map[state.ChainKey]chan struct{}{}
		for {
			select {
			case <-stop:
				return
			case m := <-w.told:
				if p := m.GetDrive().GetPlacement(); p != nil {
					revoked := make(chan struct{})
					driving[state.ChainKey{Job: p.Job, Chain: int(p.Chain)}] = revoked
					wg.Go(func() { w.drive(ctx, p, revoked) })
				}
				if c := m.GetCheck(); c != nil {
					w.answer(c)
				}
				if r := m.GetRevoke(); r != nil {
					k := state.ChainKey{Job: r.Job, Chain: int(r.Chain)}
					if c := driving[k]; c != nil {
						close(c)
						delete(driving, k)
					}
				}
			}
		}
	}()
	w.t.Cleanup(func() { close(stop); <-done })
}

// submit hands in a job and returns its id.
func (s *served) submit(text string) string {
	s.t.Helper()
	j, err := s.jobs.Submit(s.t.Context(), &pb.SubmitRequest{Spec: text})
	if err != nil {
		s.t.Fatal(err)
	}
	return j.Id
}

func (s *served) get(id string) *pb.Job {
	s.t.Helper()
	j, err := s.jobs.Get(s.t.Context(), &pb.GetJobRequest{Id: id})
	if err != nil {
		s.t.Fatal(err)
	}
	return j
}

// awaitState waits until a job is in a state.
func (s *served) awaitState(id string, want pb.JobState) *pb.Job {
	s.t.Helper()
	var j *pb.Job
	within(s.t, want.String(), func() bool { j = s.get(id); return j.State == want })
	return j
}
