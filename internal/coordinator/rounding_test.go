package coordinator

import (
	"testing"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// otherwise computes settings as a machine would whose bits differ much.
func otherwise(r *chains.Run) (*chains.Event, error) {
	e, err := sampler.Adapt(r)
	if err == nil {
		e.Settings.Step *= 0.75
	}
	return e, err
}

// of returns a worker's introduction under another arithmetic.
func of(id, isa string) *pb.Hello {
	h := hello(id)
	h.Capacity.InstructionSet = isa
	return h
}

// The settings of windows are numbers of the job's arithmetic: a leader that rounds
// otherwise has the driver of the first chain compute them, and one that rounds alike
// does it itself.
func TestSettingsAreOfTheJobsArithmetic(t *testing.T) {
	for _, c := range []struct {
		leader, worker string
		byWorker       bool
	}{
		{"arm64", "avx2/amd64", true}, {"amd64", "portable/arm64", true}, {"amd64/2", "avx2/amd64", true},
		{"amd64", "avx2/amd64", false}, {"arm64/2", "portable/arm64/2", false},
	} {
		t.Run(c.leader+" "+c.worker, func(t *testing.T) {
			s := serve(t, Config{rounding: c.leader})
			s.lead()
			w := connect(t, s.workers, of("w1", c.worker))
			w.adapt = otherwise
			w.work()
			id := s.submit(testSpec(20, 20, 10))
			j := s.awaitState(id, pb.JobState_JOB_STATE_CONVERGED)
			r := s.result(id).Run
			own, err := sampler.Adapt(&chains.Run{Plan: r.Plan, Phase: chains.Warmup, Prepared: r.Prepared, Chains: make([]chains.Chain, r.Plan.Chains)})
			if err != nil {
				t.Fatal(err)
			}
			want := own.Settings.Step
			if c.byWorker {
				want *= 0.75
			}
			if len(r.Tuned) != len(r.Plan.Windows)+1 || r.Tuned[0].Step != want {
				t.Errorf("settings %+v: the first step should be %g", r.Tuned, want)
			}
			if report.DrawsSHA256(r) != j.DrawsSha256 {
				t.Errorf("the draws are not those of the job")
			}
		})
	}
}

// There is no certificate of numbers that a leader of another arithmetic would have to
// compute: the job ends without.
func TestNoCertificateOfAnotherArithmetic(t *testing.T) {
	s := serve(t, Config{rounding: "arm64"})
	s.lead()
	w := connect(t, s.workers, of("w1", "avx2/amd64"))
	w.adapt = sampler.Adapt
	w.work()
	id := s.submit(testSpec(40, 60, 10))
	s.awaitState(id, pb.JobState_JOB_STATE_CONVERGED)
	if _, err := s.jobs.Extend(t.Context(), &pb.ExtendRequest{Id: id, Certify: true}); err != nil {
		t.Fatal(err)
	}
	j := s.awaitState(id, pb.JobState_JOB_STATE_CONVERGED)
	if r := s.result(id).Run; r.Certificate != nil || report.DrawsSHA256(r) != j.DrawsSha256 {
		t.Errorf("certificate %+v, draws %s", r.Certificate, j.DrawsSha256)
	}
}
