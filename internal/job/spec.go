// Package job holds the job specification: its fields and defaults, the strict
// reader that names the line and the nearest known field of every mistake, and
// the making of a problem from it.
package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// Spec is a job as the user writes it; docs/job-spec.md describes every field.
type Spec struct {
	Name    string  `yaml:"name" json:"name"`
	Data    Data    `yaml:"data" json:"data"`
	Model   Model   `yaml:"model" json:"model"`
	Sampler Sampler `yaml:"sampler" json:"sampler"`
	Solver  Solver  `yaml:"solver" json:"solver"`
	Stop    Stop    `yaml:"stop" json:"stop"`
	Seed    uint64  `yaml:"seed" json:"seed"`
	Notify  *Notify `yaml:"notify,omitempty" json:"notify,omitempty"`
}

// Notify says whom to tell what happens to the job.
type Notify struct {
	Webhooks []string `yaml:"webhooks,flow" json:"webhooks"`         // URLs
	On       []string `yaml:"on,flow,omitempty" json:"on,omitempty"` // NoticeKinds; none: all but cancelled and recovered
}

// Data says what to learn from.
type Data struct {
	Path      string     `yaml:"path,omitempty" json:"path,omitempty"`
	Synthetic *Synthetic `yaml:"synthetic,omitempty" json:"synthetic,omitempty"`
	Target    string     `yaml:"target,omitempty" json:"target,omitempty"`
	// Points, Window and Grid say that rows are events, and how they become counts: their coordinates, where they were looked for,
	// and the numbers of cells, such as 64x64.
	Points  []string `yaml:"points,flow,omitempty" json:"points,omitempty"`
	Window  Ranges   `yaml:"window,flow,omitempty" json:"window,omitempty"`
	Grid    string   `yaml:"grid,omitempty" json:"grid,omitempty"`
	Inputs  []string `yaml:"inputs,flow,omitempty" json:"inputs,omitempty"`
	Exclude []string `yaml:"exclude,flow,omitempty" json:"exclude,omitempty"`
	// Categories, Dates, Missing and Constant say how columns become inputs; the last two are empty for "error".
	Categories  []string `yaml:"categories,flow,omitempty" json:"categories,omitempty"`
	Levels      Levels   `yaml:"levels,flow,omitempty" json:"levels,omitempty"` // of some categories, in their order
	Dates       Texts    `yaml:"dates,flow,omitempty" json:"dates,omitempty"`   // by column, as dataset.ParseDate reads them
	Missing     string   `yaml:"missing,omitempty" json:"missing,omitempty"`
	Constant    string   `yaml:"constant,omitempty" json:"constant,omitempty"`
	Weights     string   `yaml:"weights,omitempty" json:"weights,omitempty"`     // column that the variance of the noise is divided by
	Offset      string   `yaml:"offset,omitempty" json:"offset,omitempty"`       // column of what is known of the latent function
	Trials      string   `yaml:"trials,omitempty" json:"trials,omitempty"`       // column of how many trials the target is of
	Transform   string   `yaml:"transform,omitempty" json:"transform,omitempty"` // of the target
	Standardize bool     `yaml:"standardize" json:"standardize"`
	Rows        int      `yaml:"rows" json:"rows"`
	Holdout     float64  `yaml:"holdout" json:"holdout"`
}

// Levels are lists of texts, and Texts are texts, by the names of columns.
type (
	Levels map[string][]string
	Texts  map[string]string
)

// Synthetic describes generated data.
type Synthetic struct {
	N      int     `yaml:"n" json:"n"`
	D      int     `yaml:"d" json:"d"`
	Sigma  float64 `yaml:"sigma" json:"sigma"`
	Tau    Floats  `yaml:"tau,flow" json:"tau"`
	Lambda float64 `yaml:"lambda" json:"lambda"`
	Seed   uint64  `yaml:"seed" json:"seed"`
}

// Model is the covariance function, the mean, the likelihood, and their priors.
type Model struct {
	Kernel     string        `yaml:"kernel" json:"kernel"`
	ARD        bool          `yaml:"ard" json:"ard"`
	Mean       string        `yaml:"mean,omitempty" json:"mean,omitempty"` // as expression.ParseMean reads it
	Likelihood string        `yaml:"likelihood" json:"likelihood"`
	DF         Auto[float64] `yaml:"df,omitempty" json:"df,omitzero"`        // degrees of freedom of student-t, where they have no prior
	Level      Auto[float64] `yaml:"level,omitempty" json:"level,omitzero"`  // of quantile
	Link       string        `yaml:"link,omitempty" json:"link,omitempty"`   // of bernoulli: links
	Noise      *Noise        `yaml:"noise,omitempty" json:"noise,omitempty"` // nil for one variance
	Priors     Priors        `yaml:"priors" json:"priors"`
	// Approximation is nil for none.
	Approximation *Approximation `yaml:"approximation,omitempty" json:"approximation,omitempty"`
}

// Priors are written as param.ParsePrior reads them.
type Priors struct {
	// Those of all variances, rates and noise that Of does not name.
	Sigma  string `yaml:"sigma" json:"sigma"`
	Tau    string `yaml:"tau" json:"tau"`
	Lambda string `yaml:"lambda" json:"lambda"`
	// Of are the priors of single quantities, by their names in the results: trend.lengthscale,
	// season.period, noise_sd.
	Of map[string]string `yaml:",inline" json:"-"`
}

// MarshalJSON writes all priors side by side, as YAML has them.
func (p Priors) MarshalJSON() ([]byte, error) {
	all := map[string]string{"sigma": p.Sigma, "tau": p.Tau, "lambda": p.Lambda}
	maps.Copy(all, p.Of)
	return json.Marshal(all)
}

// Sampler says how to draw.
type Sampler struct {
	Method     string        `yaml:"method" json:"method"`
	Chains     int           `yaml:"chains" json:"chains"`
	Warmup     Auto[int]     `yaml:"warmup" json:"warmup"`
	Draws      int           `yaml:"draws" json:"draws"`
	Probes     Auto[int]     `yaml:"probes" json:"probes"`
	ProbeKind  string        `yaml:"probe_kind" json:"probe_kind"`
	Step       Auto[float64] `yaml:"step" json:"step"`
	Subset     Auto[int]     `yaml:"subset" json:"subset"`
	Checkpoint int           `yaml:"checkpoint" json:"checkpoint"`
	Certify    bool          `yaml:"certify" json:"certify"`
	// Sections are what methods alone are told, by name: pointers to structs.
	Sections map[string]any `yaml:",inline" json:"-"`
}

// MarshalJSON writes the sections beside the other fields, as YAML has them.
func (s Sampler) MarshalJSON() ([]byte, error) {
	type plain Sampler
	text, err := json.Marshal(plain(s))
	for _, name := range slices.Sorted(maps.Keys(s.Sections)) {
		section, e := json.Marshal(s.Sections[name])
		err = errors.Join(err, e)
		text = fmt.Appendf(text[:len(text)-1], ",%q:%s}", name, section)
	}
	return text, err
}

// Solver says how to solve with K.
type Solver struct {
	Method         string         `yaml:"method" json:"method"`
	Tolerance      Auto[float64]  `yaml:"tolerance" json:"tolerance"`
	MaxIterations  Auto[int]      `yaml:"max_iterations" json:"max_iterations"`
	Precision      string         `yaml:"precision" json:"precision"`
	Sparsity       string         `yaml:"sparsity,omitempty" json:"sparsity,omitempty"` // Sparsities; empty for off
	Cache          Memory         `yaml:"cache" json:"cache"`
	Preconditioner Preconditioner `yaml:"preconditioner" json:"preconditioner"`
	Q              float64        `yaml:"q" json:"q"`
	Law            string         `yaml:"law" json:"law"`
	Beta           float64        `yaml:"beta" json:"beta"`
}

// Preconditioner names a P ≈ K.
type Preconditioner struct {
	Kind string    `yaml:"kind" json:"kind"`
	Rank Auto[int] `yaml:"rank" json:"rank"`
}

// Stop says when to end: converged (RHat, ESS and Error, after Sampler.Draws), or
// MaxDraws a chain, or MaxTime.
type Stop struct {
	RHat     float64  `yaml:"rhat" json:"rhat"`
	ESS      float64  `yaml:"ess" json:"ess"`
	Error    float64  `yaml:"error,omitempty" json:"error,omitempty"` // 0 for any
	MaxDraws int      `yaml:"max_draws" json:"max_draws"`
	MaxTime  Duration `yaml:"max_time" json:"max_time"`
}

// Default returns the specification with every default.
func Default() Spec {
	return Spec{
		Data:  Data{Standardize: true},
		Model: Model{Kernel: "rbf", Likelihood: gaussian, Priors: Priors{Sigma: "gamma(1,1)", Tau: "gamma(1,1)", Lambda: "gamma(1,1)"}},
		Sampler: Sampler{
			Method: sampler.Default, Chains: 4, Draws: 500, ProbeKind: "auto", Checkpoint: 20,
			Sections: sampler.Sections(),
		},
		Solver: Solver{
			Method: "pcg", Precision: "auto",
			Preconditioner: Preconditioner{Kind: "rpcholesky"},
			Q:              1, Law: "paper", Beta: 1,
		},
		Stop: Stop{RHat: 1.01, ESS: 400, MaxDraws: 5000, MaxTime: Duration(time.Hour)},
		Seed: 1,
	}
}

// Auto is a value that the program may choose: the zero Auto is "auto".
type Auto[T int | float64] struct {
	Set   bool
	Value T
}

// Fixed returns an Auto with a value.
func Fixed[T int | float64](v T) Auto[T] { return Auto[T]{true, v} }

// Or returns the value, or the given one if it is auto.
func (a Auto[T]) Or(v T) T {
	if a.Set {
		return a.Value
	}
	return v
}

// MarshalYAML returns the value or "auto".
func (a Auto[T]) MarshalYAML() (any, error) {
	if a.Set {
		return a.Value, nil
	}
	return "auto", nil
}

// MarshalText returns the value or "auto".
func (a Auto[T]) MarshalText() ([]byte, error) {
	if a.Set {
		return fmt.Append(nil, a.Value), nil
	}
	return []byte("auto"), nil
}

// Duration is a time span written as in "1h30m". Zero means no limit.
type Duration time.Duration

// MarshalYAML returns the duration as it is written.
func (d Duration) MarshalYAML() (any, error) { return time.Duration(d).String(), nil }

// MarshalText returns the duration as it is written.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Floats is a list of numbers that may be written as a single one.
type Floats []float64

// MarshalYAML writes a list of one as a number.
func (f Floats) MarshalYAML() (any, error) {
	if len(f) == 1 {
		return f[0], nil
	}
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, v := range f {
		var c yaml.Node
		if err := c.Encode(v); err != nil {
			return nil, err
		}
		n.Content = append(n.Content, &c)
	}
	return n, nil
}

// YAML returns the specification with every field written out.
func (s *Spec) YAML() ([]byte, error) { return yaml.Marshal(s) }
