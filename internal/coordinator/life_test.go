package coordinator

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/chains/chainstest"
	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// A job goes from its submission to its end: the draws that its workers made, and
// only those that count, are what is sent, hashed and summarised.
func TestLifeOfAJob(t *testing.T) {
	s := serve(t, Config{})
	s.lead()
	for _, id := range []string{"w1", "w2"} {
		connect(t, s.workers, hello(id)).work()
	}
	text := testSpec(40, 60, 10)
	id := s.submit(text)
	j := s.awaitState(id, pb.JobState_JOB_STATE_CONVERGED)
	ref := referenceRun(t, text, 40)
	if want := report.DrawsSHA256(ref); j.DrawsSha256 != want || j.StopReason != "converged" {
		t.Errorf("ended by %q with draws %s, want %s", j.StopReason, j.DrawsSha256, want)
	}
	if got := s.draws(id, false); !slices.EqualFunc(got, [][]int{{1, 40}, {2, 40}}, slices.Equal) {
		t.Errorf("draws of %v", got)
	}
	res := s.result(id)
	if got := report.DrawsSHA256(res.Run); got != j.DrawsSha256 || res.InstructionSet != "avx2" || res.Data.Rows != 40 {
		t.Errorf("the result has the draws %s", got)
	}
	sum, err := s.jobs.Summary(t.Context(), &pb.GetJobRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	var summary report.Summary
	if err := json.Unmarshal([]byte(sum.Json), &summary); err != nil {
		t.Fatal(err)
	}
	mean := 0.0 // of σ, whose logarithm is the first parameter
	for c := 1; c <= 2; c++ {
		for i := 11; i <= 50; i++ {
			mean += math.Exp(draw(c, i)[0]) / 80
		}
	}
	i := slices.IndexFunc(summary.Parameters, func(p report.Parameter) bool { return p.Name == "sigma" })
	if i < 0 || math.Abs(float64(summary.Parameters[i].Mean)-mean) > 1e-12*mean {
		t.Errorf("the mean of sigma is not %.6g: %+v", mean, summary.Parameters)
	}
	p := j.Progress
	if len(p.Chains) != 2 || p.Chains[0].Draws != 40 || p.Chains[0].Warmup != 10 || p.Chains[0].SolverIterations != 10 || client.MinDraws(p) != 40 || p.JudgedDraws != 40 {
		t.Errorf("%+v", p)
	}
	if p.Warmup != 10 || p.RhatWanted != 1.2 || p.EssWanted != 10 || p.EtaSeconds != 0 || !slices.Equal(p.Parameters, []string{"sigma", "tau", "lambda"}) {
		t.Errorf("%+v", p)
	}
	if !j.Started.IsValid() || !j.Ended.IsValid() || j.Started.AsTime().Before(j.Submitted.AsTime()) || j.Ended.AsTime().Before(j.Started.AsTime()) {
		t.Errorf("submitted %v, started %v, ended %v", j.Submitted, j.Started, j.Ended)
	}
}

// draws reads the stream of a job's draws, checks each against what the worker
// computed, and returns how many there are of each chain.
func (s *served) draws(id string, follow bool) [][]int {
	s.t.Helper()
	in, err := s.jobs.Draws(s.t.Context(), &pb.DrawsRequest{Id: id, Follow: follow})
	if err != nil {
		s.t.Fatal(err)
	}
	count := map[int]int{}
	for {
		b, err := in.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			s.t.Fatal(err)
		}
		for k := range len(b.Psi) / 8 / params {
			want := draw(int(b.Chain), 10+int(b.First)+k+1) // after ten of warm-up
			for i := range params {
				if got := math.Float64frombits(binary.LittleEndian.Uint64(b.Psi[8*(k*params+i):])); got != want[i] {
					s.t.Fatalf("chain %d, draw %d: %v, want %v", b.Chain, int(b.First)+k, got, want[i])
				}
			}
			count[int(b.Chain)]++
		}
	}
	var out [][]int
	for c := 1; count[c] > 0; c++ {
		out = append(out, []int{c, count[c]})
	}
	return out
}

func (s *served) result(id string) *result {
	s.t.Helper()
	in, err := s.jobs.Result(s.t.Context(), &pb.GetJobRequest{Id: id})
	if err != nil {
		s.t.Fatal(err)
	}
	var text []byte
	for {
		c, err := in.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			s.t.Fatal(err)
		}
		text = append(text, c.Json...)
	}
	res := &result{}
	if err := json.Unmarshal(text, res); err != nil {
		s.t.Fatal(err)
	}
	return res
}

// A job that does not converge ends at max_draws, and goes on from there when it
// is extended: to the draws of a job that was asked for more at once. Whoever
// follows its draws gets all of them.
func TestExtend(t *testing.T) {
	s := serve(t, Config{})
	s.lead()
	connect(t, s.workers, hello("w1")).work()
	text := testSpec(20, 30, never)
	id := s.submit(text)
	j := s.awaitState(id, pb.JobState_JOB_STATE_UNCONVERGED)
	if j.StopReason != "max_draws" || j.DrawsSha256 != report.DrawsSHA256(referenceRun(t, text, 30)) {
		t.Errorf("ended by %q with draws %s", j.StopReason, j.DrawsSha256)
	}
	if _, err := s.jobs.Extend(t.Context(), &pb.ExtendRequest{Id: id, Draws: 0}); err == nil {
		t.Error("extended by nothing")
	}
	if _, err := s.jobs.Extend(t.Context(), &pb.ExtendRequest{Id: id, Draws: 15}); err != nil {
		t.Fatal(err)
	}
	j = s.awaitState(id, pb.JobState_JOB_STATE_UNCONVERGED)
	if want := report.DrawsSHA256(referenceRun(t, testSpec(20, 45, never), 45)); j.DrawsSha256 != want {
		t.Errorf("draws %s, want %s", j.DrawsSha256, want)
	}
	if got := s.draws(id, true); !slices.EqualFunc(got, [][]int{{1, 45}, {2, 45}}, slices.Equal) {
		t.Errorf("draws of %v", got)
	}
}

// A job is paused, resumed and cancelled; what its state does not allow is refused
// with that state; a job that has ended is deleted with its log.
func TestActions(t *testing.T) {
	s := serve(t, Config{})
	stop := s.lead()
	id := s.submit(testSpec(1_000_000, 10_000_000, never))
	act := func(f func() error, code codes.Code, words ...string) {
		t.Helper()
		wantCode(t, "an action", f(), code, words...)
	}
	one := &pb.JobActionRequest{Id: id}
	pause := func() error { _, err := s.jobs.Pause(t.Context(), one); return err }
	resume := func() error { _, err := s.jobs.Resume(t.Context(), one); return err }
	cancel := func() error { _, err := s.jobs.Cancel(t.Context(), one); return err }
	remove := func() error { _, err := s.jobs.Delete(t.Context(), one); return err }
	act(resume, codes.FailedPrecondition, "resume", "queued")
	connect(t, s.workers, hello("w1")).work()
	s.awaitState(id, pb.JobState_JOB_STATE_SAMPLING)
	within(t, "an ETA", func() bool { return s.get(id).Progress.EtaSeconds > 0 })
	act(pause, codes.OK)
	act(pause, codes.FailedPrecondition, "pause", "paused")
	within(t, "the chains are released", func() bool {
		p := s.get(id).Progress
		return p.Chains[0].Worker == "" && p.Chains[1].Worker == ""
	})
	act(remove, codes.FailedPrecondition, "delete", "paused")
	before := s.get(id)
	if before.Progress.EtaSeconds != 0 {
		t.Errorf("a paused job is at its end in %v s", before.Progress.EtaSeconds)
	}
	time.Sleep(20 * time.Millisecond)
	if now := s.get(id); client.MinDraws(now.Progress) != client.MinDraws(before.Progress) || now.Progress.ActiveSeconds != before.Progress.ActiveSeconds {
		t.Errorf("a paused job works: %v, before %v", now.Progress, before.Progress)
	}
	act(resume, codes.OK)
	within(t, "more draws", func() bool { return client.MinDraws(s.get(id).Progress) > client.MinDraws(before.Progress) })
	act(cancel, codes.OK)
	j := s.get(id)
	if j.State != pb.JobState_JOB_STATE_CANCELLED || j.StopReason != "cancelled" || j.DrawsSha256 == "" {
		t.Errorf("%v", j)
	}
	act(cancel, codes.FailedPrecondition, "cancel", "cancelled")
	act(remove, codes.OK)
	act(remove, codes.NotFound)
	_, err := s.jobs.Get(t.Context(), &pb.GetJobRequest{Id: id})
	wantCode(t, "a deleted job", err, codes.NotFound)
	stop()
	queued := s.submit(testSpec(40, 60, 10)) // which has no run yet
	one = &pb.JobActionRequest{Id: queued}
	act(cancel, codes.OK)
	if _, err := s.jobs.Summary(t.Context(), &pb.GetJobRequest{Id: queued}); err == nil {
		t.Error("a summary of a job without a run")
	}
}

// A watch sends the job at once and whenever it has changed, to its end.
func TestWatch(t *testing.T) {
	s := serve(t, Config{})
	s.lead()
	id := s.submit(testSpec(40, 60, 10))
	in, err := s.jobs.Watch(t.Context(), &pb.WatchRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	j, err := in.Recv()
	if err != nil || j.State != pb.JobState_JOB_STATE_QUEUED {
		t.Fatalf("%v %v", j, err)
	}
	connect(t, s.workers, hello("w1")).work()
	last := j
	for {
		j, err := in.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if j.State < last.State || client.MinDraws(j.Progress) < client.MinDraws(last.Progress) {
			t.Errorf("from %v with %d draws to %v with %d", last.State, client.MinDraws(last.Progress), j.State, client.MinDraws(j.Progress))
		}
		last = j
	}
	if last.State != pb.JobState_JOB_STATE_CONVERGED {
		t.Errorf("the last is %v", last.State)
	}
}

// What cannot be a job is refused, with the field that is wrong.
func TestSubmitIsChecked(t *testing.T) {
	s := serve(t, Config{MaxJobs: 1})
	synthetic := "name: test\ndata: {synthetic: {n: 40, d: 2, sigma: 1, tau: 0.5, lambda: 0.1}}\n"
	for _, bad := range []struct {
		what string
		r    *pb.SubmitRequest
		code codes.Code
		word string
	}{
		{"no YAML", &pb.SubmitRequest{Spec: "{"}, codes.InvalidArgument, ""},
		{"a field that does not exist", &pb.SubmitRequest{Spec: synthetic + "colour: red\n"}, codes.InvalidArgument, "colour"},
		{"a long client id", &pb.SubmitRequest{Spec: synthetic, ClientId: fmt.Sprintf("%0*d", maxClientID+1, 1)}, codes.InvalidArgument, "client id"},
		{"a priority", &pb.SubmitRequest{Spec: synthetic, Priority: maxPriority + 1}, codes.InvalidArgument, "priority"},
		{"too many draws", &pb.SubmitRequest{Spec: synthetic + "stop: {max_draws: 2000000000}\n"}, codes.InvalidArgument, "draws"},
		{"data for generated ones", &pb.SubmitRequest{Spec: synthetic, Data: "x"}, codes.InvalidArgument, "generates"},
		{"data that are not there", &pb.SubmitRequest{Spec: testSpec(40, 60, 10), Data: "x"}, codes.InvalidArgument, "upload it first"},
		{"standard input", &pb.SubmitRequest{Spec: "name: test\ndata: {path: '-', target: y}\n"}, codes.InvalidArgument, "standard input"},
		{"a namespace that does not exist", &pb.SubmitRequest{Spec: synthetic, Namespace: "nowhere"}, codes.NotFound, "namespace"},
	} {
		_, err := s.jobs.Submit(t.Context(), bad.r)
		wantCode(t, bad.what, err, bad.code, bad.word)
		a, err := s.jobs.Validate(t.Context(), bad.r)
		if err != nil || len(a.Mistakes) != 1 || a.Spec != "" || !strings.Contains(a.Mistakes[0].Field+a.Mistakes[0].Message, bad.word) {
			t.Errorf("%s: found %v, %v", bad.what, a, err)
		}
	}
	a, err := s.jobs.Validate(t.Context(), &pb.SubmitRequest{Spec: synthetic + "solver:\n  tolerance: 2\n"})
	if m := a.GetMistakes(); err != nil || len(m) != 1 || m[0].Field != "spec.solver.tolerance" || m[0].Line != 4 || m[0].Column != 14 || m[0].Message != "2, but must be between 0 and 1" {
		t.Errorf("a mistake with its place: %v, %v", a, err)
	}
	a, err = s.jobs.Validate(t.Context(), &pb.SubmitRequest{Spec: synthetic})
	if err != nil || len(a.Mistakes) != 0 || !strings.Contains(a.Spec, "chains: 4") {
		t.Errorf("no mistake: %v, %v", a, err)
	}
	if l, err := s.jobs.List(t.Context(), &pb.ListJobsRequest{}); err != nil || len(l.Jobs) != 0 {
		t.Errorf("jobs that were only looked at: %v, %v", l, err)
	}
	first, err := s.jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: synthetic, ClientId: "c"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: synthetic})
	wantCode(t, "one job too many", err, codes.InvalidArgument, "keeps 1 jobs")
	s.cfg.MaxJobs = 10
	if again, err := s.jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: synthetic, ClientId: "c"}); err != nil || again.Id != first.Id {
		t.Errorf("submitted again: %v %v, want %s", again, err, first.Id)
	}
}

// A job that has ended is certified on request: its draws stay what they are, and
// the run of the exact sampler comes with its result.
func TestCertify(t *testing.T) {
	s := serve(t, Config{})
	s.lead()
	connect(t, s.workers, hello("w1")).work()
	text := testSpec(40, 60, 10)
	id := s.submit(text)
	j := s.awaitState(id, pb.JobState_JOB_STATE_CONVERGED)
	sha256 := j.DrawsSha256
	_, err := s.jobs.Extend(t.Context(), &pb.ExtendRequest{Id: id})
	wantCode(t, "extended by nothing", err, codes.InvalidArgument)
	if _, err := s.jobs.Extend(t.Context(), &pb.ExtendRequest{Id: id, Certify: true}); err != nil {
		t.Fatal(err)
	}
	within(t, "the certificate", func() bool {
		j = s.get(id)
		return j.State == pb.JobState_JOB_STATE_CONVERGED && s.result(id).Run.Certificate != nil
	})
	if j.DrawsSha256 != sha256 || sha256 != report.DrawsSHA256(referenceRun(t, text, 40)) {
		t.Errorf("draws %s, before %s", j.DrawsSha256, sha256)
	}
	c := s.result(id).Run.Certificate
	if c.Plan.Method != "exact" || c.Phase != chains.Done || c.MinDraws() < c.Plan.Draws {
		t.Errorf("a certificate by %s, %s, of %d draws", c.Plan.Method, c.Phase, c.MinDraws())
	}
	if again, err := s.jobs.Extend(t.Context(), &pb.ExtendRequest{Id: id, Certify: true}); err != nil || again.State != pb.JobState_JOB_STATE_CONVERGED {
		t.Errorf("certified again: %v %v", again, err)
	}
	fresh := serve(t, Config{}) // where nobody reads the data
	_, err = fresh.jobs.Extend(t.Context(), &pb.ExtendRequest{Id: fresh.submit(text), Certify: true})
	wantCode(t, "before there are draws", err, codes.FailedPrecondition)
}

// The items of a stage go to the lanes, each to one, until one has been out for
// long; what a lane was given it is given again.
func TestAssignmentsOfStages(t *testing.T) {
	plan := chainstest.StagedPlan()
	j := &followed{}
	j.Job = &state.Job{ID: "a", Phase: state.Warmup, Chains: plan.Chains, Info: testInfo()}
	for range plan.Lanes + 1 {
		j.Job.Placements = append(j.Job.Placements, state.Placement{Worker: "w", Attempt: 1})
	}
	j.Run = chains.New(plan)
	next := func(lane int) *chains.Work {
		t.Helper()
		a, err := j.assignment(lane, 1, true, epoch)
		if err != nil {
			t.Fatal(err)
		}
		if a == nil {
			return nil
		}
		w, err := chains.WorkOf(a.Work)
		if err != nil || a.DataSha256 != testInfo().SHA256 {
			t.Fatal(err)
		}
		return w
	}
	apply := func(w *chains.Work) {
		t.Helper()
		if err := j.Run.Apply(chainstest.Event(plan, *w, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if w := next(1); w != nil {
		t.Errorf("before the preparation: %+v", w)
	}
	apply(next(0)) // prepared
	apply(next(0)) // the first stage
	if w := next(0); w != nil {
		t.Errorf("while a stage is open: %+v", w)
	}
	items := map[int]bool{}
	for lane := 1; lane <= plan.Lanes; lane++ {
		w := next(lane)
		if again := next(lane); again.Evaluate.Item != w.Evaluate.Item {
			t.Errorf("lane %d is given item %d, then %d", lane, w.Evaluate.Item, again.Evaluate.Item)
		}
		if items[w.Evaluate.Item] {
			t.Errorf("item %d is given twice", w.Evaluate.Item)
		}
		items[w.Evaluate.Item] = true
	}
	for range 100 {
		if w := next(1); w != nil {
			apply(w)
		}
	}
	if n := j.Run.Stages[0].Left; n != plan.Lanes-1 {
		t.Errorf("%d items are left, want those of the other lanes", n)
	}
	if _, err := j.assignment(plan.Lanes+1, 1, true, epoch); err == nil {
		t.Error("a lane that does not exist")
	}
}

// A job that its time ends in the warm-up has the draws of that in its result, and its
// summary is made of them.
func TestResultOfAWarmup(t *testing.T) {
	run := referenceRun(t, testSpec(40, 60, never), 0)
	for range 2 { // windows
		e, err := sampler.Adapt(run)
		if err == nil {
			err = run.Apply(*e)
		}
		if err != nil {
			t.Fatal(err)
		}
		for c := range run.Chains {
			for task, ok := run.Task(c + 1); ok; task, ok = run.Task(c + 1) {
				if err := run.Apply(chains.Event{Checkpoint: checkpointOf(&task)}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	got := copyRun(run)
	for c := range run.Chains {
		if len(got.Chains[c].Windows) != 2 || !slices.EqualFunc(got.Chains[c].Windows[1], run.Chains[c].Windows[1], slices.Equal) {
			t.Errorf("chain %d: windows %v", c+1, got.Chains[c].Windows)
		}
	}
	if kept := keptDraws(referenceRun(t, testSpec(40, 60, never), 10), 5); kept.Chains[0].Windows != nil || len(kept.Chains[0].Draws) != 5 {
		t.Errorf("of a run with draws: %+v", kept.Chains[0])
	}
}
