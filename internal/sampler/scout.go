package sampler

import (
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/maxima"
)

// Of many rows an evaluation takes minutes, and most of those of a climb are far from any maximum. There the broad starts climb on a
// random subset of the rows, and climbs on all rows begin at the maxima that these scouts came to, with the curvature that they found.
// A maximum of all rows near which a subset has none is left to those who explore (search.go).

const (
	// scoutFrom is the number of rows beyond which there are scouts, scoutRows how many rows they climb on.
	scoutFrom, scoutRows = smallRows, 2000
	// mostScouted is how many of the scouts' maxima are climbed from, those of the largest masses.
	mostScouted = 4
)

// ScoutedRows returns on how many of so many rows a staged run scouts, by a factor of them: 0 if it does not.
func ScoutedRows(rows int) int {
	if rows <= scoutFrom {
		return 0
	}
	return scoutRows
}

// scouting returns the stage of the scouts.
func (k *conductor) scouting() *chains.Event {
	return k.stage(scoutStage, k.ofSubset(), k.broad())
}

// ofSubset returns the shared numbers of stages that evaluate a subset.
func (k *conductor) ofSubset() [][]float64 {
	return [][]float64{{bySubset, scoutRows}, k.in.Prepared.Psi}
}

// scouted returns the starts of climbs on all rows: the maxima of the scouts that may matter, with their information in proportion to the
// rows, and how many scouts came there; none if no scout came to one.
func (k *conductor) scouted() [][]float64 {
	found := maxima.Distinct(k.scouts, 0)
	slices.SortStableFunc(found, byLogMass)
	var starts [][]float64
	for _, m := range found {
		if _, ok := m.Covariance(); !ok || len(starts) == mostScouted || m.LogMass() < found[0].LogMass()-relevant {
			break
		}
		var info mat.SymDense
		info.ScaleSym(k.rowsOver(scoutRows), m.Info)
		starts = append(starts, slices.Concat(m.X, chains.Flat(&info), []float64{float64(m.Found)}))
	}
	return starts
}

// rowsOver returns how many times as many rows there are.
func (k *conductor) rowsOver(rows float64) float64 { return float64(k.model.Rows) / rows }
