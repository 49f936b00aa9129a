package dashboard

import (
	"encoding/binary"
	"errors"
	"math"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/plots"
)

// Bounds of what is kept of a job's draws: numbers in all, and the latest draws
// of each chain, which autocorrelations need without gaps.
const (
	maxNumbers = 1 << 19
	maxRecent  = 2048
)

// series are the draws of a job, of long chains evenly spaced ones.
type series struct {
	params int
	every  int
	most   int // kept of each chain
	recent int
	chains []kept
}

// kept is what is kept of a chain.
type kept struct {
	seen   int         // draws so far
	x      [][]float64 // by parameter: the draws 0, every, 2·every, …
	latest [][]float64 // by parameter: the last ones
}

// newSeries returns an empty series of a number of chains.
func newSeries(chains, params int) *series {
	s := &series{params: params, every: 1, chains: make([]kept, chains)}
	each := maxNumbers / max(1, chains*params)
	s.most = max(2, each)
	s.recent = min(maxRecent, s.most)
	for c := range s.chains {
		s.chains[c].x, s.chains[c].latest = make([][]float64, params), make([][]float64, params)
	}
	return s
}

var errBatch = errors.New("the coordinator sent draws that do not continue the chain")

// add adds a batch; draws that are there already are passed over.
func (s *series) add(b *pb.DrawBatch) error {
	n := 0
	if s.params > 0 {
		n = len(b.Psi) / 8 / s.params
	}
	if int(b.Params) != s.params || b.Chain < 1 || int(b.Chain) > len(s.chains) || len(b.Psi) != 8*n*s.params {
		return errBatch
	}
	c := &s.chains[b.Chain-1]
	if int(b.First) > c.seen {
		return errBatch
	}
	for t := c.seen - int(b.First); t < n; t++ {
		for i := range s.params {
			v := math.Float64frombits(binary.LittleEndian.Uint64(b.Psi[8*(t*s.params+i):]))
			if c.seen%s.every == 0 {
				c.x[i] = append(c.x[i], v)
			}
			if len(c.latest[i]) == 2*s.recent {
				c.latest[i] = append(c.latest[i][:0], c.latest[i][s.recent:]...)
			}
			c.latest[i] = append(c.latest[i], v)
		}
		c.seen++
		if len(c.x[0]) > s.most {
			s.halve()
		}
	}
	return nil
}

// halve keeps every second of the draws that are kept.
func (s *series) halve() {
	s.every *= 2
	for c := range s.chains {
		for i, x := range s.chains[c].x {
			n := 0
			for t := 0; t < len(x); t += 2 {
				x[n] = x[t]
				n++
			}
			s.chains[c].x[i] = x[:n]
		}
	}
}

// draws returns the number of draws that every chain has, n at most if it is
// positive.
func (s *series) draws(n int) int {
	least := math.MaxInt
	for _, c := range s.chains {
		least = min(least, c.seen)
	}
	if n > 0 {
		least = min(least, n)
	}
	return least
}

// all returns the kept ones of the first n draws of each chain. They are copies.
func (s *series) all(names []string, n int) plots.Draws {
	d := plots.Draws{Names: names, Every: s.every}
	k := (n + s.every - 1) / s.every
	for i := range names {
		var x [][]float64
		for _, c := range s.chains {
			x = append(x, append([]float64(nil), c.x[i][:k]...))
		}
		d.X = append(d.X, x)
	}
	return d
}

// last returns the latest of the first n draws of each chain, without gaps.
func (s *series) last(names []string, n int) plots.Draws {
	first := 0
	for _, c := range s.chains {
		first = max(first, c.seen-len(c.latest[0]))
	}
	first = max(first, n-s.recent)
	d := plots.Draws{Names: names, First: first}
	for i := range names {
		var x [][]float64
		for _, c := range s.chains {
			if first >= n { // one chain is far ahead
				x = append(x, nil)
				continue
			}
			from := c.seen - len(c.latest[i])
			x = append(x, append([]float64(nil), c.latest[i][d.First-from:n-from]...))
		}
		d.X = append(d.X, x)
	}
	return d
}
