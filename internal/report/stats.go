package report

import (
	"bufio"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/runlog"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// Stats are what is known of the iteration that made each kept draw, as far as
// the log tells: the log is kept for people, and need not be whole.
type Stats struct {
	Names []string               // in the order of every output
	X     map[string][][]float64 // X[name][c][t], NaN where the log has nothing
}

// value returns a statistic of an iteration (sampler.Method.Statistics).
func value(o *runlog.Observation, name string) float64 {
	switch name {
	case sampler.AcceptanceRate:
		return o.Acceptance
	case sampler.CorrectionRate:
		return o.Correction
	case "probes":
		return float64(o.Probes)
	case "solver_iterations":
		return o.Iterations
	case "residual":
		return o.Residual
	case "unconverged":
		return float64(o.Unconverged)
	case "products":
		return float64(o.Products)
	case "seconds":
		return o.Seconds
	}
	panic("report: no statistic is called " + name)
}

// NewStats returns statistics of the draws of a run that nothing is known of.
func NewStats(r *chains.Run) *Stats {
	s := &Stats{Names: sampler.Of(&r.Plan).Statistics(), X: map[string][][]float64{}}
	for _, name := range s.Names {
		for _, ch := range r.Chains {
			x := make([]float64, len(ch.Draws))
			for t := range x {
				x[t] = math.NaN()
			}
			s.X[name] = append(s.X[name], x)
		}
	}
	return s
}

// Add takes in a line of the log; lines of other things it passes over. Where
// two speak of one iteration, which a resumed run does anew, the last counts.
func (s *Stats) Add(r *chains.Run, line []byte) {
	o, ok := runlog.Parse(line)
	if !ok || o.Kind == runlog.Trials || o.Kind == runlog.Item || o.Certificate || o.Chain < 1 || o.Chain > len(r.Chains) {
		return
	}
	ch := &r.Chains[o.Chain-1]
	t := o.Iter - ch.Warmup - 1
	if t < 0 || t >= len(ch.Draws) {
		return
	}
	for _, name := range s.Names {
		s.X[name][o.Chain-1][t] = value(&o, name)
	}
}

// With returns the statistics and one more, before them: x[c][t]. s may be nil.
func (s *Stats) With(name string, x [][]float64) *Stats {
	out := &Stats{Names: []string{name}, X: map[string][][]float64{name: x}}
	if s != nil {
		out.Names = append(out.Names, s.Names...)
		maps.Copy(out.X, s.X)
	}
	return out
}

// Known reports whether the log said anything.
func (s *Stats) Known() bool {
	for _, name := range s.Names {
		for _, chain := range s.X[name] {
			for _, x := range chain {
				if !math.IsNaN(x) {
					return true
				}
			}
		}
	}
	return false
}

// ReadStats returns the statistics that the log in the folder of a run tells,
// or nil if it tells none.
func ReadStats(dir string, r *chains.Run) (*Stats, error) {
	f, err := os.Open(filepath.Join(dir, "log.jsonl"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := NewStats(r)
	for br := bufio.NewReader(f); ; {
		line, err := br.ReadBytes('\n')
		s.Add(r, line)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if !s.Known() {
		return nil, nil
	}
	return s, nil
}
