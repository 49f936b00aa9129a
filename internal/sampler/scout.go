package sampler

import (
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/maxima"
)

// Of many rows an evaluation takes minutes, and most of those of a climb are far from any maximum. There the broad starts climb on a
// random subset of the rows, from the maxima that these scouts came to others on a third of the rows, and climbs on all rows begin at
// theirs, with the curvature that they found. A maximum of all rows near which a subset has none is left to those who explore (search.go).

const (
	// scoutFrom is the number of rows beyond which there are scouts, scoutRows how many rows the first climb on.
	scoutFrom, scoutRows = smallRows, 2000
	// secondShare is the share of the rows that the second climb on, secondMost rows at most, if these are secondGrowth times as many.
	secondShare, secondMost, secondGrowth = 1. / 3, 8000, 1.5
	// mostScouted is how many of the scouts' maxima are climbed from, those of the largest masses.
	mostScouted = 4
	// scoutedTolerance is how near to a maximum climbs from there are to come: what is learnt of the density says the rest.
	scoutedTolerance = 0.2
)

// ScoutedRows returns on how many of so many rows the scouts of a staged run climb, one after the other: none of few.
func ScoutedRows(rows int) []int {
	if rows <= scoutFrom {
		return nil
	}
	if second := int(min(secondMost, secondShare*float64(rows))); float64(second) >= secondGrowth*scoutRows {
		return []int{scoutRows, second}
	}
	return []int{scoutRows}
}

// scouting returns the next stage of scouts, nil if there were all.
func (k *conductor) scouting() *chains.Event {
	levels, done := ScoutedRows(k.model.Rows), k.count[scoutStage]
	if done == len(levels) {
		return nil
	}
	starts := k.broad()
	if done > 0 {
		if starts = k.scouted(); len(starts) == 0 {
			return nil
		}
	}
	return k.stage(scoutStage, [][]float64{{bySubset, float64(levels[done])}, k.in.Prepared.Psi}, starts)
}

// ofSubset returns the shared numbers of stages that evaluate the rows of the last scouts.
func (k *conductor) ofSubset() [][]float64 {
	return [][]float64{{bySubset, float64(k.rows)}, k.in.Prepared.Psi}
}

// scout is a climb on a subset with its records, of which the last are those of the curvature where it has come to.
type scout struct {
	*maxima.Climb
	records []record
}

// scouted returns the starts of climbs on all rows: the maxima of the scouts that may matter, with the information that all rows are likely to
// have there, and how many scouts came there; none if no scout came to one.
func (k *conductor) scouted() [][]float64 {
	var climbs []*maxima.Climb
	for _, s := range k.scouts {
		climbs = append(climbs, s.Climb)
	}
	found := maxima.Distinct(climbs, 0)
	slices.SortStableFunc(found, byLogMass)
	var starts [][]float64
	for _, m := range found {
		if len(starts) == mostScouted || m.LogMass() < found[0].LogMass()-relevant {
			break
		}
		starts = append(starts, slices.Concat(m.X, chains.Flat(k.information(m)), []float64{float64(m.Found)}))
	}
	return starts
}

// information returns the information of all rows at a maximum of the scouts, as theirs leads to expect.
func (k *conductor) information(m *maxima.Maximum) *mat.SymDense {
	var guess mat.SymDense
	guess.ScaleSym(float64(k.model.Rows)/float64(k.rows), m.Info)
	i := slices.IndexFunc(k.scouts, func(s *scout) bool { return s.Best() != nil && slices.Equal(s.Best().X, m.X) })
	records := k.scouts[i].records
	grads := k.ofAll(records[max(0, len(records)-2*len(m.X)):])
	if slices.ContainsFunc(grads, func(g []float64) bool { return g == nil }) {
		return &guess
	}
	info, _ := maxima.Hessian(grads, m.Info)
	var chol mat.Cholesky
	if !chol.Factorize(info) {
		return &guess
	}
	return info
}

// ofAll returns the gradients of the log density of all rows that records of the subset lead to expect, nil where there are none: the
// prior's does not grow with the rows.
func (k *conductor) ofAll(records []record) [][]float64 {
	more := float64(k.model.Rows) / float64(k.rows)
	var grads [][]float64
	for _, r := range records {
		_, g := r.density(k.env)
		if g != nil {
			_, prior := k.env.LogPrior(r.psi)
			floats.Scale(more, g)
			floats.AddScaled(g, 1-more, prior)
		}
		grads = append(grads, g)
	}
	return grads
}
