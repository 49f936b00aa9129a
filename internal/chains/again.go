package chains

import (
	"crypto/sha256"
	"encoding/hex"
)

// What a driver reports is a function of its work, to the last bit: whoever carries out the work
// again comes to an event of the same sum.

// WorkOf returns the work that an event of a driver comes of, which is not applied yet; false
// where it fits nothing that the run waits for.
func (r *Run) WorkOf(e *Event) (w Work, ok bool) {
	if r.Phase == Certifying {
		if !e.Certificate {
			return w, false
		}
		inner := *e
		inner.Certificate = false
		if w, ok = r.Certificate.WorkOf(&inner); w.Prepare != nil {
			w.Prepare.From = r.pooledPoint()
		}
		w.Certificate = true
		return w, ok
	}
	switch {
	case e.Certificate:
	case e.Prepared != nil:
		return Work{Prepare: &Preparation{}}, r.Phase == Preparing
	case e.Provisional != nil:
		return Work{Weigh: &Weighing{From: r.Prepared}}, r.weighs()
	case e.Coefficients != nil:
		if r.Phase != Concluding {
			return w, false
		}
		return Work{Conclude: r.concluding()}, true
	case e.Stage != nil:
		return Work{Conduct: r.conducting()}, r.idle() && e.Stage.Number == len(r.Stages)+1
	case e.Drawn != nil:
		return Work{Conduct: r.conducting()}, r.idle() && e.Drawn.Stages == len(r.Stages) && (r.Drawn == nil || r.Drawn.Stages != e.Drawn.Stages)
	case e.Evaluated != nil:
		s, v := r.open(), e.Evaluated
		if s == nil || v.Stage != s.Number || v.Item < 0 || v.Item >= len(s.Items) || s.Results[v.Item] != nil {
			return w, false
		}
		return r.evaluation(s, v.Item), true
	case e.Checkpoint != nil:
		// A chain with latent vectors is computed once: those that it comes from are dropped as soon as
		// the next ones are kept.
		k := e.Checkpoint
		if r.Plan.Latent > 0 || r.Settings == nil || k.Chain < 1 || k.Chain > len(r.Chains) || k.FromIter != r.Chains[k.Chain-1].State.Iter {
			return w, false
		}
		return Work{Advance: &Task{Chain: k.Chain, From: r.Chains[k.Chain-1].State.clone(), Settings: *r.Settings,
			Iterations: len(k.Draws), Warmup: r.Phase == Warmup, Left: len(k.Draws)}}, true
	}
	return w, false
}

// Sum returns a hash of all of an event of a driver that decides how the run goes on, its draws
// among it: all but what it cost.
func (e *Event) Sum() (string, error) {
	same := *e
	switch {
	case e.Prepared != nil:
		p := *e.Prepared
		p.Cost = Cost{}
		same.Prepared = &p
	case e.Provisional != nil:
		p := *e.Provisional
		p.Cost = Cost{}
		same.Provisional = &p
	case e.Coefficients != nil:
		k := *e.Coefficients
		k.Cost = Cost{}
		same.Coefficients = &k
	case e.Evaluated != nil:
		v := *e.Evaluated
		v.Cost = Cost{}
		same.Evaluated = &v
	case e.Checkpoint != nil:
		k := *e.Checkpoint
		k.Cost, k.Vitals, k.Stats.Products = Cost{}, Vitals{}, 0
		same.Checkpoint = &k
	}
	text, err := same.Encode()
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}
