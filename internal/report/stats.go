package report

import (
	"bufio"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// Stats are what is known of the iteration that made each kept draw, as far as
// the log tells: the log is kept for people, and need not be whole.
type Stats struct {
	Names []string               // in the order of every output
	X     map[string][][]float64 // X[name][c][t], NaN where the log has nothing
}

// AcceptanceRate is the name of the probability with which the proposal was
// accepted, which other programs know too.
const AcceptanceRate = "acceptance_rate"

// statNames returns the statistics that iterations of a method have.
func statNames(method string) []string {
	switch method {
	case "cholesky":
		return []string{AcceptanceRate, "seconds"}
	case "exact":
		return []string{AcceptanceRate, "solver_iterations", "residual", "unconverged", "products", "seconds"}
	}
	return []string{"probes", "solver_iterations", "residual", "unconverged", "products", "seconds"}
}

// logged is what a line of the log says of an iteration, written by ulisse run
// or by a worker.
type logged struct {
	Msg              string   `json:"msg"`
	Chain            int      `json:"chain"`
	Iter             int      `json:"iter"`
	Acceptance       *float64 `json:"acceptance"`
	Probes           *float64 `json:"probes"`
	SolverIterations *float64 `json:"solver_iterations"`
	Iterations       *float64 `json:"iterations"`
	Residual         *float64 `json:"residual"`
	Unconverged      *float64 `json:"unconverged"`
	Products         *float64 `json:"products"`
	Seconds          *float64 `json:"seconds"`
}

func (l *logged) value(name string) float64 {
	p := map[string]*float64{AcceptanceRate: l.Acceptance, "probes": l.Probes, "solver_iterations": l.SolverIterations,
		"residual": l.Residual, "unconverged": l.Unconverged, "products": l.Products, "seconds": l.Seconds}[name]
	if p == nil && name == "solver_iterations" {
		p = l.Iterations
	}
	switch {
	case p != nil:
		return *p
	case name == AcceptanceRate: // which a worker leaves out where it is 0
		return 0
	}
	return math.NaN()
}

// NewStats returns statistics of the draws of a run that nothing is known of.
func NewStats(r *chains.Run) *Stats {
	s := &Stats{Names: statNames(r.Plan.Method), X: map[string][][]float64{}}
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
	var l logged
	if json.Unmarshal(line, &l) != nil || l.Chain < 1 || l.Chain > len(r.Chains) {
		return
	}
	exact := s.Names[0] == AcceptanceRate
	if l.Msg != "gradient" && !(exact && l.Msg == "step") { // or it is a step of a certificate's chain
		return
	}
	ch := &r.Chains[l.Chain-1]
	t := l.Iter - ch.Warmup - 1
	if t < 0 || t >= len(ch.Draws) {
		return
	}
	for _, name := range s.Names {
		s.X[name][l.Chain-1][t] = l.value(name)
	}
}

// Known reports whether the log said anything.
func (s *Stats) Known() bool {
	for _, chain := range s.X[s.Names[0]] {
		for _, x := range chain {
			if !math.IsNaN(x) {
				return true
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
