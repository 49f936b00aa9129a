package sampler

import (
	"context"
	"fmt"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sgld"
)

// sgldMethod is stochastic gradient Langevin dynamics as Filippone and Engler (2015)
// run it (sgld.SGLD), the baseline: the mode and the metric are those of a subset of
// the rows, there is no warm-up but until the step is frozen, and probes are kept
// for some iterations.
type sgldMethod struct{}

// SGLD is what a specification tells it.
type SGLD struct {
	A      float64 `yaml:"a" json:"a"`           // step ε_t = a(b+t)^−γ
	B      float64 `yaml:"b" json:"b"`           //
	Gamma  float64 `yaml:"gamma" json:"gamma"`   //
	Freeze float64 `yaml:"freeze" json:"freeze"` // bound on (ε_t/4)·λ_max(M^½ V M^½) at which ε freezes
	Batch  int     `yaml:"batch" json:"batch"`   // gradients from which V is estimated
	Redraw int     `yaml:"redraw" json:"redraw"` // iterations between new probes
}

// Of SGLD as published: rows of the subset on Concrete, and probes N_r.
const (
	sgldSubset = 500
	sgldProbes = 4
)

func (sgldMethod) Name() string           { return "sgld" }
func (sgldMethod) Windows(*Options) []int { return nil }
func (sgldMethod) Statistics() []string   { return gradientStatistics }

func (sgldMethod) Section() any {
	return &SGLD{A: 4.004, B: 40.04, Gamma: 1, Freeze: 0.002, Batch: 100, Redraw: 20}
}

func (sgldMethod) Check(o *Options) (field, msg string) {
	s := o.Section.(*SGLD)
	for _, f := range []struct {
		field string
		x     float64
	}{{"sgld.a", s.A}, {"sgld.b", s.B}, {"sgld.freeze", s.Freeze}} {
		if !(f.x > 0) {
			return f.field, fmt.Sprintf("%g, but must be positive", f.x)
		}
	}
	switch {
	case !(s.Gamma >= 0 && s.Gamma <= 1):
		return "sgld.gamma", fmt.Sprintf("%g, but must be from 0 to 1", s.Gamma)
	case s.Batch < 10:
		return "sgld.batch", fmt.Sprintf("%d, but must be at least 10", s.Batch)
	case s.Redraw < 1:
		return "sgld.redraw", fmt.Sprintf("%d, but must be at least 1", s.Redraw)
	case o.Checkpoint%s.Redraw != 0:
		return "checkpoint", fmt.Sprintf("%d, but must be a multiple of sampler.sgld.redraw, %d: warm starts end at checkpoints", o.Checkpoint, s.Redraw)
	}
	return "", ""
}

func (sgldMethod) Needs() Needs {
	return Needs{Search: OnSubset, Subset: sgldSubset, Gradients: true, Probes: "rademacher"}
}

func (sgldMethod) Redraw(o *Options) int { return o.Section.(*SGLD).Redraw }

func (sgldMethod) Adapt(r *chains.Run, s *chains.Settings, _ []float64) error {
	s.Probes = or(r.Plan.Probes, sgldProbes)
	return nil
}

func (sgldMethod) Start(env Env, o *Options, _ *chains.Plan, t *chains.Task, k *chains.Checkpoint) (Step, error) {
	s := o.Section.(*SGLD)
	kern, err := sgld.NewSGLD(s.A, s.B, s.Gamma, s.Freeze, s.Batch, t.Settings.Metric())
	if err != nil {
		return nil, err
	}
	st, err := sgld.ReadSGLDState(k.State.Memory, len(k.State.Psi))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key random.Key) (Outcome, error) {
		g, err := env.Gradient(ctx, Request{Psi: k.State.Psi, Key: key, Probes: t.Settings.Probes})
		if err != nil {
			return Outcome{}, err
		}
		if st.Frozen == 0 {
			k.Discard++
		}
		kern.Advance(k.State.Psi, g.Value, key.Iter, st, key.Stream(random.Noise, 0))
		k.State.Memory = st.Memory()
		return Outcome{}, nil
	}, nil
}
