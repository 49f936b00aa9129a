// Package runlog is the schema of what is logged of a run: what one gradient, or one
// step without, cost and gave. Drivers write it, to the log of ulisse run and to that
// of a job alike; reports, exports and pages read it.
package runlog

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"time"
)

// Kind is what an observation is of: the msg of its line.
type Kind string

// The kinds.
const (
	Gradient Kind = "gradient"
	Step     Kind = "step"           // of a sampler that makes no gradients
	Trials   Kind = "preconditioner" // those that were compared
	Item     Kind = "item"           // of a stage
)

// Observation is what one gradient, or one step without, cost and gave; or which
// preconditioners were compared.
type Observation struct {
	Kind        Kind      `json:"msg"`
	Certificate bool      `json:"certificate"` // of the run that certifies another
	Chain       int       `json:"chain"`       // 0 while the mode is sought
	Iter        int       `json:"iter"`
	Rows        int       `json:"rows"` // fewer than all while the mode is sought
	Psi         []float64 `json:"psi"`
	Seconds     float64   `json:"seconds"`

	Gradient    []float64 `json:"gradient"`
	Probes      int       `json:"probes"`
	Tolerance   float64   `json:"tolerance"`    // of the relative residual
	Noise       float64   `json:"noise_ratio"`  // of the gradient; 0 if it was not measured
	NoiseBudget float64   `json:"noise_budget"` // that the step leaves
	Drift       float64   `json:"drift"`        // iterations over those at the mode, where P was built

	Acceptance float64 `json:"acceptance"` // of the proposal of this step
	Correction float64 `json:"correction"` // probability with which a step was kept whose auxiliary variables are nearly right

	Solves      int     `json:"solves"`            // right-hand sides
	Iterations  float64 `json:"solver_iterations"` // mean over right-hand sides
	Residual    float64 `json:"residual"`          // largest true relative residual
	Unconverged int     `json:"unconverged"`
	Products    int     `json:"products"`
	Singles     int     `json:"single_products"` // those of them in single precision
	Pairs       float64 `json:"pairs"`           // elements of K ranged over
	PairsRead   float64 `json:"pairs_read"`      // those of them that were kept from an earlier product

	Stage     int    `json:"stage"`
	StageKind string `json:"stage_kind"` // of which Iter is the item

	Preconditioner string `json:"kind"` // the one that was chosen
	Rank           int    `json:"rank"`
	Trials         any    `json:"trials"` // all that were compared
}

// Attrs returns what an observation of its kind has to say.
func (o *Observation) Attrs() []slog.Attr {
	at := []slog.Attr{slog.Int("chain", o.Chain), slog.Int("iter", o.Iter), slog.Int("rows", o.Rows), slog.Any("psi", o.Psi)}
	if o.Certificate {
		at = append(at, slog.Bool("certificate", true))
	}
	switch o.Kind {
	case Trials:
		return append(at, slog.String("kind", o.Preconditioner), slog.Int("rank", o.Rank), slog.Any("trials", o.Trials))
	case Item:
		at = append(at, slog.Int("stage", o.Stage), slog.String("stage_kind", o.StageKind))
	case Step:
		at = append(at, slog.Float64("acceptance", o.Acceptance))
		if o.Correction > 0 {
			at = append(at, slog.Float64("correction", o.Correction))
		}
	case Gradient:
		at = append(at, slog.Any("gradient", o.Gradient), slog.Int("probes", o.Probes), slog.Float64("tolerance", o.Tolerance),
			slog.Float64("noise_ratio", o.Noise), slog.Float64("noise_budget", o.NoiseBudget), slog.Float64("drift", o.Drift))
	}
	if o.Solves > 0 {
		at = append(at, slog.Int("solves", o.Solves), slog.Float64("solver_iterations", o.Iterations), slog.Float64("residual", o.Residual),
			slog.Int("unconverged", o.Unconverged), slog.Int("products", o.Products), slog.Int("single_products", o.Singles),
			slog.Float64("pairs", o.Pairs), slog.Float64("pairs_read", o.PairsRead))
	}
	return append(at, slog.Float64("seconds", o.Seconds))
}

// Line returns the observation as a line of JSON without the time.
func (o *Observation) Line() string {
	var b bytes.Buffer
	h := slog.NewJSONHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}})
	r := slog.NewRecord(time.Time{}, slog.LevelInfo, string(o.Kind), 0)
	r.AddAttrs(o.Attrs()...)
	_ = h.Handle(context.Background(), r) // a buffer takes everything
	return string(bytes.TrimSpace(b.Bytes()))
}

// Parse reads a line of a log. It reports false for lines of other things.
func Parse(line []byte) (o Observation, ok bool) {
	err := json.Unmarshal(line, &o)
	return o, err == nil && (o.Kind == Gradient || o.Kind == Step || o.Kind == Trials || o.Kind == Item)
}
