package job

import (
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
)

// Noise says what variance the noise has in each row: what is known of it, and a parameter, one for all rows
// or one for each level of a column.
type Noise struct {
	Column string `yaml:"column,omitempty" json:"column,omitempty"` // of what is known
	As     string `yaml:"as,omitempty" json:"as,omitempty"`         // what it holds: noiseForms; empty is the first
	By     string `yaml:"by,omitempty" json:"by,omitempty"`
	Extra  string `yaml:"extra,omitempty" json:"extra,omitempty"` // noise beside what is known: noiseExtras; empty is the first
	// The covariance of the log variance, under the heteroscedastic likelihood, and of the gate, under those that have one.
	LogVariance string `yaml:"log_variance,omitempty" json:"log_variance,omitempty"`
	Gate        string `yaml:"gate,omitempty" json:"gate,omitempty"`
}

// The words for noise.
var (
	noiseForms  = []string{"sd", "variance"}
	noiseExtras = []string{"lambda", "none"}
)

// NoiseColumns returns the columns of the table that say what noise the rows have, nil for none. Trials are weights of a
// kind.
func (s *Spec) NoiseColumns() *dataset.Noise {
	n := s.Model.Noise
	switch {
	case n != nil && s.Model.second() == nil:
		return &dataset.Noise{Column: n.Column, Variance: n.As == "variance", By: n.By, Weights: s.Data.Weights}
	case s.Data.Weights != "":
		return &dataset.Noise{Weights: s.Data.Weights}
	case s.Data.Trials != "":
		return &dataset.Noise{Weights: s.Data.Trials}
	}
	return nil
}

// noise returns the likelihood of data of the given description, of no rows yet.
func (s *Spec) noise(d *dataset.Info) likelihood.Likelihood {
	if d.Noise == nil {
		return likelihood.Gaussian{}
	}
	index := []string{""}
	if s.Model.Noise != nil && s.Model.Noise.Extra == "none" {
		index = nil
	}
	if d.Noise.By != "" {
		index = nil
		for _, level := range d.Noise.Levels {
			index = append(index, d.Noise.By+"="+level)
		}
	}
	return likelihood.NewUnequal(index, d.Noise.Column != "")
}

// faultOfNoise is fault for what is said of the noise.
func (s *Spec) faultOfNoise() (path, msg string) {
	if path, msg := s.faultOfSecond(); msg != "" || s.Model.second() != nil {
		return path, msg
	}
	n, d := s.Model.Noise, &s.Data
	if c := s.NoiseColumns(); c != nil {
		weights := "data.weights"
		if d.Trials != "" {
			weights = "data.trials"
		}
		for _, f := range []struct{ path, name string }{{weights, c.Weights}, {"model.noise.column", c.Column}, {"model.noise.by", c.By}} {
			switch {
			case f.name == "":
			case d.Synthetic != nil:
				return f.path, "generated data have no such column: leave it out, or give data.path"
			case f.name == d.Target:
				return f.path, "this is the target: name another column"
			case slices.Contains(d.Exclude, f.name):
				return f.path, "this column is excluded: take it off data.exclude"
			case f.path != "model.noise.by" && slices.Contains(d.Inputs, f.name):
				return f.path, "this column is one of data.inputs: it says what noise the rows have, and cannot be both"
			}
		}
		if c.Column != "" && c.Column == c.Weights || c.By != "" && (c.By == c.Column || c.By == c.Weights) {
			return "model.noise", "one column is named for two things"
		}
	}
	switch {
	case n == nil:
	case n.Column == "" && n.By == "":
		return "model.noise", "nothing is said of the noise: name a column of known standard deviations, {column: sd_y}, or one whose levels have noise of their own, {by: station}; leave it out for one variance"
	case n.As != "" && !slices.Contains(noiseForms, n.As):
		return "model.noise.as", "the column holds one of " + strings.Join(noiseForms, ", ")
	case n.As != "" && n.Column == "":
		return "model.noise.as", "there is no column of known noise: give model.noise.column, or leave this out"
	case n.Extra != "" && !slices.Contains(noiseExtras, n.Extra):
		return "model.noise.extra", "noise beside what is known is one of " + strings.Join(noiseExtras, ", ")
	case n.Extra == "none" && n.Column == "":
		return "model.noise.extra", "without known noise there has to be some: give model.noise.column, or leave this out"
	case n.Extra == "none" && (n.By != "" || d.Weights != ""):
		return "model.noise.extra", "model.noise.by and data.weights are of the noise that is not known, and there is to be none: leave them or this out"
	}
	return "", ""
}
