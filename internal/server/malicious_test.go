package server

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
)

// params is the number of parameters of the tests' jobs.
const params = 3

// encoded returns an event as a driver reports it.
func encoded(t *testing.T, e chains.Event) []byte {
	t.Helper()
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func diagonal(x float64) []float64 {
	out := make([]float64, params*params)
	for i := range params {
		out[i*params+i] = x
	}
	return out
}

func goodInfo() *dataset.Info {
	one := dataset.Scale{SD: 1}
	return &dataset.Info{Rows: 40, Target: "y", InputNames: []string{"a", "b"}, XScale: []dataset.Scale{one, one}, YScale: one, SHA256: strings.Repeat("ab", 32)}
}

func goodPreparation() *chains.Prepared {
	psi := make([]float64, params)
	return &chains.Prepared{Psi: psi, Starts: [][]float64{psi, psi}, Cov: diagonal(0.1), ProbeCov: diagonal(0.01)}
}

// checkpoint is the answer to a task that a driver might give.
func checkpoint(task *chains.Task) *chains.Checkpoint {
	k := &chains.Checkpoint{Chain: task.Chain, FromIter: task.From.Iter, State: chains.State{Iter: task.From.Iter + task.Iterations}}
	for i := range task.Iterations {
		x := 0.01 * float64(task.From.Iter+i+10*task.Chain)
		k.Draws = append(k.Draws, []float64{x, -x, x / 2})
	}
	k.State.Psi = slices.Clone(k.Draws[len(k.Draws)-1])
	if task.Warmup {
		k.Stats = chains.Stats{Spreads: task.Iterations, ProbeCov: diagonal(0.01 * float64(task.Iterations))}
	}
	return k
}

// task asks what a chain is to do.
func (w *fakeWorker) task(p *pb.Placement) *chains.Task {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	for {
		r, err := w.workers.Await(ctx, &pb.AwaitRequest{Job: p.Job, Chain: p.Chain, Attempt: p.Attempt, Secret: p.Secret})
		if err != nil {
			w.t.Fatal(err)
		}
		if r.Assignment != nil {
			work, err := chains.WorkOf(r.Assignment.Work)
			if err != nil {
				w.t.Fatal(err)
			}
			return work.Advance
		}
	}
}

func (w *fakeWorker) report(p *pb.Placement, events ...[]byte) error {
	_, err := w.workers.Report(w.t.Context(), &pb.ReportRequest{Job: p.Job, Chain: p.Chain, Attempt: p.Attempt, Secret: p.Secret, Events: events})
	return err
}

func (w *fakeWorker) loaded(p *pb.Placement, data *pb.DataInfo) error {
	_, err := w.workers.Report(w.t.Context(), &pb.ReportRequest{Job: p.Job, Chain: p.Chain, Attempt: p.Attempt, Secret: p.Secret, Loaded: &pb.Loaded{Data: data}})
	return err
}

// allDraws returns the kept draws of a job, by chain and as sent.
func allDraws(t *testing.T, r running, id string) string {
	t.Helper()
	s, err := pb.NewJobsClient(r.conn).Draws(t.Context(), &pb.DrawsRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	var out string
	for {
		b, err := s.Recv()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out += fmt.Sprintf("%d/%d:%x;", b.Chain, b.First, b.Psi)
	}
}

// refused checks that a report was refused, for one of the reasons.
func refused(t *testing.T, what string, err error, reasons ...codes.Code) {
	t.Helper()
	if !slices.Contains(reasons, status.Code(err)) {
		t.Errorf("%s: %v, want one of %v", what, err, reasons)
	}
}

// Whatever a worker answers that is not the next checkpoint of its chain is
// refused and changes nothing; what is, counts.
func TestMaliciousReports(t *testing.T) {
	r := startCoordinator(t)
	w := newFakeWorker(t, r, "fake", "none")
	id := submit(t, r, 100)
	const bad, stale = codes.InvalidArgument, codes.FailedPrecondition

	// The preparation.
	p := w.driven(id, 0)
	refused(t, "a preparation before the data", w.report(p, encoded(t, chains.Event{Prepared: goodPreparation()})), stale)
	for what, change := range map[string]func(*dataset.Info){
		"no rows":             func(i *dataset.Info) { i.Rows = -1 },
		"no inputs":           func(i *dataset.Info) { i.InputNames, i.XScale = nil, nil },
		"a scale is missing":  func(i *dataset.Info) { i.XScale = i.XScale[:1] },
		"a scale is zero":     func(i *dataset.Info) { i.YScale.SD = 0 },
		"a scale is negative": func(i *dataset.Info) { i.XScale[1].SD = -1 },
		"no hash":             func(i *dataset.Info) { i.SHA256 = "ab" },
	} {
		i := goodInfo()
		change(i)
		refused(t, what, w.loaded(p, i.Wire("")), bad)
	}
	refused(t, "no data", w.loaded(p, nil), bad)
	if err := w.loaded(p, goodInfo().Wire("")); err != nil {
		t.Fatal(err)
	}
	other := goodInfo()
	other.SHA256 = strings.Repeat("cd", 32)
	refused(t, "other data", w.loaded(p, other.Wire("")), bad)
	for what, change := range map[string]func(*chains.Prepared){
		"a mode of two parameters":     func(p *chains.Prepared) { p.Psi = p.Psi[:2] },
		"one start":                    func(p *chains.Prepared) { p.Starts = p.Starts[:1] },
		"a start of one parameter":     func(p *chains.Prepared) { p.Starts = [][]float64{p.Psi, p.Psi[:1]} },
		"a start where e^ψ is none":    func(p *chains.Prepared) { p.Starts = [][]float64{p.Psi, {1e300, 0, 0}} },
		"a covariance that is not 3×3": func(p *chains.Prepared) { p.Cov = p.Cov[:8] },
		"a noise that is not 3×3":      func(p *chains.Prepared) { p.ProbeCov = p.ProbeCov[:2] },
		"a solver noise of 4×4":        func(p *chains.Prepared) { p.SolverCov = make([]float64, 16) },
		"a negative cost":              func(p *chains.Prepared) { p.Cost.Solves = -1 },
		"a cost beyond all numbers":    func(p *chains.Prepared) { p.Cost.Seconds = 1e308 },
	} {
		g := goodPreparation()
		change(g)
		refused(t, what, w.report(p, encoded(t, chains.Event{Prepared: g})), bad)
	}
	if err := w.report(p, encoded(t, chains.Event{Prepared: goodPreparation()})); err != nil {
		t.Fatal(err)
	}

	// The chains, to the middle of sampling.
	places := []*pb.Placement{w.driven(id, 1), w.driven(id, 2)}
	good := func(p *pb.Placement) (task *chains.Task, event []byte) {
		t.Helper()
		task = w.task(p)
		event = encoded(t, chains.Event{Checkpoint: checkpoint(task)})
		if err := w.report(p, event); err != nil {
			t.Fatal(err)
		}
		return task, event
	}
	attack := func(phase string) {
		t.Helper()
		p := places[0]
		task := w.task(p)
		before := allDraws(t, r, id)
		for what, change := range map[string]func(*chains.Checkpoint){
			"a draw too few":            func(k *chains.Checkpoint) { k.Draws = k.Draws[1:] },
			"a draw too many":           func(k *chains.Checkpoint) { k.Draws = append(k.Draws, k.Draws[0]) },
			"a parameter too few":       func(k *chains.Checkpoint) { k.Draws[0] = k.Draws[0][:2] },
			"a draw that is nothing":    func(k *chains.Checkpoint) { k.Draws[1] = nil },
			"a draw where e^ψ is none":  func(k *chains.Checkpoint) { k.Draws[0][1] = -1e9 },
			"a state of one parameter":  func(k *chains.Checkpoint) { k.State.Psi = k.State.Psi[:1] },
			"a state of no parameters":  func(k *chains.Checkpoint) { k.State.Psi = nil },
			"a state too far":           func(k *chains.Checkpoint) { k.State.Iter++ },
			"more discarded than drawn": func(k *chains.Checkpoint) { k.Discard = 1000 },
			"less than none discarded":  func(k *chains.Checkpoint) { k.Discard = -1 },
			"statistics of 2×2":         func(k *chains.Checkpoint) { k.Stats.ProbeCov = make([]float64, 4) },
			"statistics of more":        func(k *chains.Checkpoint) { k.Stats.Spreads = 1 << 40 },
			"statistics of less":        func(k *chains.Checkpoint) { k.Stats.Spreads = -1 },
			"a negative cost":           func(k *chains.Checkpoint) { k.Cost.Pairs = -1 },
			"a cost beyond all numbers": func(k *chains.Checkpoint) { k.Cost.Seconds = 1e308 },
			"chain 0":                   func(k *chains.Checkpoint) { k.Chain = 0 },
			"the other chain":           func(k *chains.Checkpoint) { k.Chain = 2 },
			"a chain that is not there": func(k *chains.Checkpoint) { k.Chain = 1 << 40 },
			"a negative chain":          func(k *chains.Checkpoint) { k.Chain = -1 },
		} {
			k := checkpoint(task)
			change(k)
			refused(t, phase+": "+what, w.report(p, encoded(t, chains.Event{Checkpoint: k})), bad)
		}
		k := checkpoint(task)
		k.FromIter--
		refused(t, phase+": from somewhere else", w.report(p, encoded(t, chains.Event{Checkpoint: k})), stale)
		fine := encoded(t, chains.Event{Checkpoint: checkpoint(task)})
		for what, x := range map[string]float64{"NaN": math.NaN(), "infinity": math.Inf(1)} {
			k := checkpoint(task)
			k.Draws[0][0] = x
			refused(t, phase+": "+what, w.report(p, encoded(t, chains.Event{Checkpoint: k})), bad)
		}
		end := encoded(t, chains.Event{Stop: &chains.Stop{Reason: chains.Converged}})
		for what, event := range map[string][]byte{
			"nothing":        {},
			"a text":         []byte("checkpoint"),
			"no message":     []byte("\xff\xfe"),
			"an end":         end,
			"more draws":     encoded(t, chains.Event{Extend: &chains.Extend{Draws: 1000}}),
			"settings":       encoded(t, chains.Event{Settings: &chains.Settings{Window: task.Settings.Window + 1, C: diagonal(1)}}),
			"an end with it": slices.Concat(fine, end),
			"a preparation":  encoded(t, chains.Event{Prepared: goodPreparation()}),
			"half of it":     fine[:len(fine)/2],
			"of another run": encoded(t, chains.Event{Certificate: true, Checkpoint: checkpoint(task)}),
		} {
			refused(t, phase+": "+what, w.report(p, event), bad, stale)
		}
		// One that is good, with one that is bad: neither counts.
		k = checkpoint(task)
		k.FromIter += len(k.Draws)
		k.State.Iter += len(k.Draws)
		k.Draws = k.Draws[1:]
		refused(t, phase+": good and bad", w.report(p, fine, encoded(t, chains.Event{Checkpoint: k})), bad, stale)
		// Who is not the driver.
		for _, q := range []*pb.Placement{
			{Job: id, Chain: 1, Attempt: p.Attempt - 1}, {Job: id, Chain: 1, Attempt: p.Attempt + 1}, {Job: id, Chain: 2, Attempt: places[1].Attempt},
			{Job: id, Chain: -1, Attempt: p.Attempt, Secret: p.Secret}, {Job: id, Chain: 1 << 30, Attempt: p.Attempt, Secret: p.Secret}, {Job: id, Chain: 0, Attempt: p.Attempt, Secret: p.Secret},
			{Job: "../../" + id, Chain: 1, Attempt: p.Attempt, Secret: p.Secret},
		} {
			refused(t, fmt.Sprintf("%s: as %v", phase, q), w.report(q, fine), bad, stale, codes.NotFound)
		}
		if allDraws(t, r, id) != before {
			t.Fatalf("%s: what was refused has changed the draws", phase)
		}
		if again := w.task(p); again.From.Iter != task.From.Iter {
			t.Fatalf("%s: what was refused has moved the chain", phase)
		}
	}
	attack("warm-up")
	for sampling := false; !sampling; {
		for _, p := range places {
			task, event := good(p)
			refused(t, "a late duplicate", w.report(p, event), stale)
			sampling = !task.Warmup
			if task.Warmup && task.Left > task.Iterations {
				good(p)
			}
		}
	}
	attack("sampling")
	before := allDraws(t, r, id)
	good(places[0])
	if allDraws(t, r, id) == before {
		t.Error("a good checkpoint did not count")
	}
	if j, err := pb.NewJobsClient(r.conn).Get(t.Context(), &pb.GetJobRequest{Id: id}); err != nil || j.State != pb.JobState_JOB_STATE_SAMPLING {
		t.Errorf("the job is %v (%v) after all that", j.GetState(), err)
	}
}

// A worker that says to drive what no job has does not stop the leader.
func TestMaliciousHello(t *testing.T) {
	r := startCoordinator(t)
	id := submit(t, r, 100)
	s, err := pb.NewWorkersClient(r.conn).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	say := func(chain int32) error {
		t.Helper()
		s, err := pb.NewWorkersClient(r.conn).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		hello := &pb.Hello{Id: "liar", Driving: []*pb.Placement{{Job: id, Chain: chain, Attempt: 1}, {Job: "nobody", Chain: chain}}}
		if err := s.Send(&pb.WorkerMessage{Message: &pb.WorkerMessage_Hello{Hello: hello}}); err != nil {
			t.Fatal(err)
		}
		_, err = s.Recv()
		return err
	}
	refused(t, "a negative chain", say(-1), codes.InvalidArgument)
	if err := say(1 << 30); err != nil { // it is told to let go
		t.Errorf("a chain that is not there: %v", err)
	}
	if err := s.Send(&pb.WorkerMessage{Message: &pb.WorkerMessage_Beat{Beat: &pb.Beat{}}}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Recv()
	refused(t, "no hello", err, codes.InvalidArgument)
	later := submit(t, r, 100)
	if _, err := pb.NewJobsClient(r.conn).Cancel(t.Context(), &pb.JobActionRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the leader's next decision", func() bool {
		j, err := pb.NewJobsClient(r.conn).Get(t.Context(), &pb.GetJobRequest{Id: later})
		return err == nil && j.State == pb.JobState_JOB_STATE_PREPARING
	})
}
