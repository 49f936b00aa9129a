package chains

// Coefficients are the distributions of the coefficients of a mean given each of some draws, which are
// normal: their posterior is the mixture. Units are those of the standardised data.
type Coefficients struct {
	Draws int `json:"draws"` // kept of each chain by then
	// Mean and SD are draws × coefficients, chain by chain, as many draws of each.
	Mean        [][]float64 `json:"mean"`
	SD          [][]float64 `json:"sd"`
	Unconverged int         `json:"unconverged,omitempty"` // solves
	Cost        Cost        `json:"cost"`
}

// Conclusion asks for the Coefficients at some of the draws.
type Conclusion struct {
	Draws int         `json:"draws"`
	At    [][]float64 `json:"at"`
}

// concludingDraws is at how many draws of all chains coefficients are computed, at most, but one of each
// chain at least: a solve each, and one for each coefficient.
const concludingDraws = 100

// concluding returns what is to be computed when the sampling has ended: at draws that are evenly spaced.
func (r *Run) concluding() *Conclusion {
	n := r.Stopped.Draws
	each := min(n, max(1, concludingDraws/len(r.Chains)))
	c := &Conclusion{Draws: n}
	for i := range r.Chains {
		for t := range each {
			c.At = append(c.At, r.Chains[i].Draws[(2*t+1)*n/(2*each)])
		}
	}
	return c
}

// coefficients ends a run, unless it is to be certified.
func (r *Run) coefficients(k *Coefficients) error {
	if r.Phase != Concluding {
		return ErrPhase
	}
	if k.Draws != r.Stopped.Draws { // the run was extended meanwhile
		return ErrStale
	}
	at := len(r.concluding().At)
	if len(k.Mean) != at || len(k.SD) != at || k.Unconverged < 0 || !k.Cost.sane() || !finite(k.Mean...) || !finite(k.SD...) {
		return ErrShape
	}
	for t := range at {
		if q := len(k.Mean[0]); q == 0 || len(k.Mean[t]) != q || len(k.SD[t]) != q {
			return ErrShape
		}
		for _, sd := range k.SD[t] {
			if !(sd > 0) {
				return ErrShape
			}
		}
	}
	r.Coefficients, r.Phase = k, Done
	r.certify()
	return nil
}

// Chains returns what a function says of a coefficient at each draw, chain by chain.
func (k *Coefficients) Chains(m int, of func(t int) float64) [][]float64 {
	out := make([][]float64, m)
	each := len(k.Mean) / m
	for t := range k.Mean[:m*each] {
		out[t/each] = append(out[t/each], of(t))
	}
	return out
}
