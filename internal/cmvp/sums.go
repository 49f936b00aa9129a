package cmvp

import (
	"slices"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// formSums lists the sums that gradient forms are made of. With P_t the product of a
// term's leaves and D_ℓ what the derivative of a leaf is multiplied by, they are, over
// all pairs of rows with weights w = Σ u_r v_j + v_r u_j:
//
//	Σ w·P_t                   for the variance of a term
//	Σ w·D_ℓ·u·g'              for a rate that all features of a leaf share
//	Σ w·D_ℓ·g'·(z_rk−z_jk)²   for the rate of one feature
//	Σ w·D_ℓ·g'·Σ_k (z_rk−z_jk)(ż_rk−ż_jk)   for a parameter that a leaf's features depend on
//	Σ w·D_ℓ·a·∂g/∂a          for the shape a that the profile of a leaf depends on
//	Σ w·D_ℓ·Σ_k (ż_rk·z_jk + z_rk·ż_jk)     for a parameter of the features of a dot product
//
// where ż is the derivative of the features. The fourth is a difference of the sums of squares
// of z+ż and of z−ż, over four.
//
// Where a leaf occurs once, D is the product of the term's other leaves; else it is
// the sum of these over the places where it occurs, weighted by the terms' shares of
// the scale.
//
// A pass over the weights takes a strip that is summed up with another, or with the
// spread of the features of a leaf. The first passes are those of spreads.
//
// The forms of terms of low rank are products of sums, and have slots of their own, after the others.
type formSums struct {
	cov    *kernel.Covariance // whose strips are summed up, nil if there is none
	params int                // of the whole covariance
	at     []int              // the places of cov's parameters among these
	slots  []slot
	low    int // the first slot of the terms of low rank
	passes []pass
	only   []int  // of each leaf, the term in which it occurs; -1 if it occurs more than once
	shared []bool // of each leaf, whether it has one rate that its features share, and no other derivative by u
	spread []bool // of each leaf, whether it has rates otherwise, or its features, of a distance, depend on parameters
	over   []int  // of each leaf, how many features its spread is over
	direct []direct
}

// direct is a parameter by which the derivative of a leaf is a strip of its own: the shape of its profile, or, of
// dot products, one that features depend on.
type direct struct {
	leaf, param int // the latter among the leaf's
}

// slot is one of the sums.
type slot struct {
	param int  // of the whole that it belongs to; -1 for a sum that is of no use
	term  int  // whose variance it is in units of; -1 for the scale
	low   bool // whether it is the form itself, of a term of low rank
	// unit is what one of the sum is in units of the scale or of the variance: 1, or, for
	// a sum over squared differences of scaled features, what these are in units of u.
	unit float64
}

// source is a strip that is weighed and summed up.
type source struct {
	kind sourceKind
	at   int // the term, the leaf, or the place in direct
}

type sourceKind int

const (
	ofTerm   sourceKind = iota // P
	ofLeaf                     // its derivative by u, times D
	ofDirect                   // that of direct, times D
)

// pass sums two strips, k and h, into the slots from first on. If spread is set, h
// is a leaf's, and its spread takes a slot for each feature.
type pass struct {
	k, h   source
	first  int
	spread bool
}

// newSums returns the sums of a covariance of which the part of low rank is not evaluated pair by pair.
func newSums(c *kernel.Covariance) *formSums {
	s := &formSums{params: len(c.Params())}
	if pairs, at := c.Pairs(); pairs != nil {
		s = sumsOf(pairs, at, s.params)
	}
	s.low = len(s.slots)
	for _, p := range lowSlots(c) {
		s.slots = append(s.slots, slot{param: p, low: true})
	}
	return s
}

// sumsOver returns the sums of a covariance all of which is evaluated pair by pair.
func sumsOver(c *kernel.Covariance) *formSums {
	at := make([]int, len(c.Params()))
	for i := range at {
		at[i] = i
	}
	return sumsOf(c, at, len(at))
}

// sumsOf returns the sums of strips of c, at being the places of its parameters among so many.
func sumsOf(c *kernel.Covariance, at []int, params int) *formSums {
	s := &formSums{cov: c, at: at, params: params, only: occurrences(c)}
	for _, l := range c.Leaves() {
		warps := len(warpsOf(l))
		rates := len(l.Params()) - warps
		if l.Shape() >= 0 {
			rates--
		}
		s.shared = append(s.shared, rates == 1 && warps == 0)
		s.spread = append(s.spread, l.Profile() != kernel.Dot && (rates > 1 || warps > 0))
		s.over = append(s.over, spreadFeatures(l))
	}
	var dots []source
	var spreads []int
	for t, term := range c.Terms() {
		if term.Variance >= 0 {
			dots = append(dots, source{ofTerm, t})
		}
	}
	for l, leaf := range c.Leaves() {
		switch {
		case s.shared[l]:
			dots = append(dots, source{ofLeaf, l})
		case s.spread[l]:
			spreads = append(spreads, l)
		}
		if leaf.Shape() >= 0 {
			s.direct = append(s.direct, direct{l, leaf.Shape()})
			dots = append(dots, source{ofDirect, len(s.direct) - 1})
		}
		if leaf.Profile() != kernel.Dot {
			continue
		}
		for _, p := range warpsOf(leaf) {
			s.direct = append(s.direct, direct{l, p})
			dots = append(dots, source{ofDirect, len(s.direct) - 1})
		}
	}
	for _, l := range spreads {
		d := source{ofLeaf, l}
		p := pass{k: d, h: d, first: len(s.slots), spread: true}
		if len(dots) > 0 {
			p.k, dots = dots[0], dots[1:]
			s.add(p.k)
		} else {
			s.slots = append(s.slots, slot{param: -1, term: -1})
		}
		s.addSpread(l)
		s.passes = append(s.passes, p)
	}
	for len(dots) > 0 {
		p := pass{k: dots[0], h: dots[0], first: len(s.slots)}
		s.add(dots[0])
		if len(dots) > 1 {
			p.h = dots[1]
			s.add(dots[1])
		} else {
			s.slots = append(s.slots, slot{param: -1, term: -1})
		}
		dots = dots[min(2, len(dots)):]
		s.passes = append(s.passes, p)
	}
	return s
}

// shape returns the place in direct of the shape of a leaf, -1 if it has none that is a parameter.
func (s *formSums) shape(leaf int) int {
	return slices.Index(s.direct, direct{leaf, s.cov.Leaves()[leaf].Shape()})
}

// addSpread adds the slots of the features of a leaf, as spreadOf packs them.
func (s *formSums) addSpread(l int) {
	leaf, at := s.cov.Leaves()[l], s.cov.LeafParams(l)
	q := unscale(leaf.Profile())
	for k := range leaf.NumFeatures() {
		param := -1
		if i := leaf.RateOf(k); i >= 0 {
			param = s.at[at[i]]
		}
		s.slots = append(s.slots, slot{param: param, term: s.only[l], unit: q})
	}
	for _, half := range []float64{q / 2, -q / 2} { // twice, of ∂Δz² = 2·Δz·Δż, a quarter
		for k := range leaf.NumFeatures() {
			for _, p := range leaf.WarpsOf(k) {
				s.slots = append(s.slots, slot{param: s.at[at[p]], term: s.only[l], unit: half})
			}
		}
	}
}

// spreadFeatures returns how many features the spread of a leaf is over: z, and, for each parameter that
// one of these depends on, z+ż and z−ż.
func spreadFeatures(l kernel.Leaf) int {
	n := l.NumFeatures()
	for k := range l.NumFeatures() {
		n += 2 * len(l.WarpsOf(k))
	}
	return n
}

// warpsOf returns the places of the parameters that features of a leaf depend on.
func warpsOf(l kernel.Leaf) (all []int) {
	for k := range l.NumFeatures() {
		all = append(all, l.WarpsOf(k)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// occurrences returns for each leaf the term in which it occurs, -1 if it occurs more
// than once.
func occurrences(c *kernel.Covariance) []int {
	only, times := make([]int, len(c.Leaves())), make([]int, len(c.Leaves()))
	for t, term := range c.Terms() {
		for _, l := range term.Leaves {
			times[l]++
			only[l] = t
		}
	}
	for l, n := range times {
		if n > 1 {
			only[l] = -1
		}
	}
	return only
}

// add adds the slot of a strip.
func (s *formSums) add(d source) {
	if d.kind == ofTerm {
		s.slots = append(s.slots, slot{param: s.at[s.cov.Terms()[d.at].Variance], term: d.at, unit: 1})
		return
	}
	of := direct{leaf: d.at}
	if d.kind == ofDirect {
		of = s.direct[d.at]
	} else {
		of.param = s.cov.Leaves()[d.at].RateOf(0)
	}
	s.slots = append(s.slots, slot{param: s.at[s.cov.LeafParams(of.leaf)[of.param]], term: s.only[of.leaf], unit: 1})
}

// Len returns how many sums there are for a task and a group.
func (s *formSums) Len() int { return len(s.slots) }

// factor returns what turns a sum into a form: σ, and for a spread σ·q, since
// τ_k Δ_k² = q·(Δz_k)². The function is that of the strips.
func (s *formSums) factor(f *kernel.Function, at slot) float64 {
	switch {
	case at.low:
		return 1
	case at.term >= 0:
		return f.TermVariance(at.term) * at.unit
	}
	return f.Scale() * at.unit
}

// reduce returns the forms of each group that the sums of all tasks, in their
// order, add up to. The function is that of the strips.
func (s *formSums) reduce(f *kernel.Function, sums []float64, tasks, groups int) [][]float64 {
	per, params := len(s.slots), s.params
	out, all := make([][]float64, groups), make([]float64, groups*params)
	for g := range out {
		out[g] = all[g*params : (g+1)*params : (g+1)*params]
		for i, at := range s.slots {
			if at.param < 0 {
				continue
			}
			var sum float64
			for t := range tasks {
				sum += sums[(t*groups+g)*per+i]
			}
			out[g][at.param] += s.factor(f, at) * sum
		}
	}
	return out
}
