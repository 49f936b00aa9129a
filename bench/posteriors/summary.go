package main

import (
	"fmt"
	"log"
	"math"

	"gonum.org/v1/gonum/floats"

	"github.com/ulisse-gp/ulisse/internal/accuracy"
	"github.com/ulisse-gp/ulisse/internal/diagnostics"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/maxima"
	"github.com/ulisse-gp/ulisse/internal/metropolis"
	"github.com/ulisse-gp/ulisse/internal/mixture"
	"github.com/ulisse-gp/ulisse/internal/modes"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Summary is what is known of a posterior. Parameters are the logarithms of those of the
// model, of data standardised as the specification says. Errors are Monte Carlo standard
// errors.
type Summary struct {
	Rows          int        `json:"rows"`
	Inputs        int        `json:"inputs"`
	Kernel        string     `json:"kernel"`
	ARD           bool       `json:"ard"`
	Priors        job.Priors `json:"priors"`
	DataSHA256    string     `json:"data_sha256"`
	Seed          uint64     `json:"seed"`
	Gradients     int64      `json:"gradients"` // of the search for modes
	Densities     int64      `json:"densities"`
	SecondsSearch float64    `json:"seconds_search"`
	Seconds       float64    `json:"seconds"` // of the densities
	Draws         int        `json:"draws"`
	Acceptance    float64    `json:"acceptance"`
	LongestStay   int        `json:"longest_stay"`
	RHat          float64    `json:"rhat"`
	KHat          float64    `json:"khat"`
	Components    int        `json:"components"`
	LogEvidence   Number     `json:"log_evidence"`
	// WeightsDiffer is the largest difference of a mean between chains and importance weights
	// in units of the error of the former, which the latter shares in part.
	WeightsDiffer float64     `json:"weights_differ"`
	Parameters    []Parameter `json:"parameters"`
	Modes         []Mode      `json:"modes"`
}

// Number is an estimate with its standard error.
type Number struct {
	Value float64 `json:"value"`
	Error float64 `json:"error"`
}

// Parameter are the estimates of one parameter.
type Parameter struct {
	Name      string            `json:"name"`
	ESS       float64           `json:"ess"`
	Mean      Number            `json:"mean"`
	SD        Number            `json:"sd"`
	Quantiles map[string]Number `json:"quantiles"`
}

// Mode is a mode with the maxima in it, the highest first.
type Mode struct {
	Mass   Number      `json:"mass"`
	Mean   []float64   `json:"mean"`
	SD     []float64   `json:"sd"`
	Maxima []PeakFound `json:"maxima"`
}

// PeakFound is a maximum.
type PeakFound struct {
	At         []float64 `json:"at"`
	LogDensity float64   `json:"log_density"`
	Found      int       `json:"found"` // climbs that came to it
}

const chains = 4

// peakDrop is by how much the log density falls between two modes.
const peakDrop = 1.5

func (s *Summary) fill(p *posterior.Problem, peaks []*maxima.Maximum, m *mixture.Mixture, list *metropolis.Proposals, o options) error {
	w, err := metropolis.Weigh(list)
	if err != nil {
		return err
	}
	s.KHat, s.Components, s.Draws = w.KHat, m.Len(), len(list.X)
	s.LogEvidence = Number{w.LogConstant, w.Error}
	var draws [][][]float64
	if draws, s.Acceptance, s.LongestStay, err = scan(list, o); err != nil {
		return err
	}
	for i, name := range p.Model.Names() {
		q := accuracy.Draws{X: column(draws, i)}
		weighted := accuracy.Draws{X: column([][][]float64{w.X}, i), Weights: w.W}
		s.RHat = max(s.RHat, diagnostics.RHat(q.X))
		mean := number(q.Mean())
		s.WeightsDiffer = max(s.WeightsDiffer, math.Abs(weighted.Mean().Value-mean.Value)/mean.Error)
		par := Parameter{Name: "log_" + name, ESS: diagnostics.ESSMean(q.X), Mean: mean, SD: number(q.SD()), Quantiles: map[string]Number{}}
		for _, order := range []float64{0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975} {
			par.Quantiles[fmt.Sprint(order)] = number(q.Quantile(order))
		}
		s.Parameters = append(s.Parameters, par)
	}
	s.fillModes(peaks, m, draws)
	log.Printf("acceptance %.2f, k-hat %.2f, R-hat %.4f, %.0f s", s.Acceptance, s.KHat, s.RHat, s.Seconds)
	return nil
}

// scan returns the draws of the chains over a list of proposals.
func scan(list *metropolis.Proposals, o options) (draws [][][]float64, acceptance float64, longest int, err error) {
	per := len(list.X) / chains
	draws = make([][][]float64, chains)
	for c := range draws {
		part := list.Slice(c*per, (c+1)*per)
		state, rate := metropolis.Scan(part.LogWeights(), o.stream(random.Accept, sampling)(-1-c))
		acceptance += rate / chains
		longest = max(longest, metropolis.LongestStay(state))
		for _, at := range state {
			if at >= 0 {
				draws[c] = append(draws[c], part.X[at])
			}
		}
		if len(draws[c]) != per {
			return nil, 0, 0, fmt.Errorf("chain %d began after %d proposals only", c+1, per-len(draws[c]))
		}
	}
	return draws, acceptance, longest, nil
}

func (s *Summary) fillModes(found []*maxima.Maximum, m *mixture.Mixture, draws [][][]float64) {
	var peaks []modes.Peak
	for _, f := range found {
		cov, _ := f.Covariance()
		peaks = append(peaks, modes.Peak{X: f.X, Value: f.Value, LogMass: f.LogMass(), Cov: cov})
	}
	mode := modes.Merge(peaks, m.LogDensity, peakDrop)
	var all [][]float64
	for _, c := range draws {
		all = append(all, c...)
	}
	label := modes.Assign(all, nil, peaks, mode)
	for k := 0; ; k++ {
		var md Mode
		for i, p := range found {
			if mode[i] == k {
				md.Maxima = append(md.Maxima, PeakFound{p.X, p.Value, p.Found})
			}
		}
		if md.Maxima == nil {
			return
		}
		in := make([][]float64, len(draws))
		dim := len(found[0].X)
		md.Mean, md.SD = make([]float64, dim), make([]float64, dim)
		count, at := 0.0, 0
		for c := range draws {
			in[c] = make([]float64, len(draws[c]))
			for t, x := range draws[c] {
				if label[at] == k {
					in[c][t] = 1
					count++
					floats.Add(md.Mean, x)
				}
				at++
			}
		}
		floats.Scale(1/max(1, count), md.Mean)
		for i, x := range all {
			if label[i] == k {
				for j := range x {
					md.SD[j] += (x[j] - md.Mean[j]) * (x[j] - md.Mean[j]) / max(1, count)
				}
			}
		}
		for j, v := range md.SD {
			md.SD[j] = math.Sqrt(v)
		}
		mass := accuracy.Draws{X: in}.Mean()
		md.Mass = Number{mass.Value, mass.MonteCarlo()}
		if math.IsNaN(md.Mass.Error) { // every draw is in it, or none
			md.Mass.Error = 0
		}
		s.Modes = append(s.Modes, md)
	}
}

func number(e accuracy.Estimate) Number { return Number{e.Value, e.MonteCarlo()} }

// column returns coordinate i of the draws.
func column(draws [][][]float64, i int) [][]float64 {
	out := make([][]float64, len(draws))
	for c := range draws {
		out[c] = make([]float64, len(draws[c]))
		for t, x := range draws[c] {
			out[c][t] = x[i]
		}
	}
	return out
}
