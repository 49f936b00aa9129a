// Package random names every stream of random numbers in a run by what it is
// for, so that a draw depends on (seed, chain, iteration, purpose) and on
// nothing that happened before: no stream is shared, none carries state across
// a checkpoint.
package random

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
)

// Purpose says what a stream is for. Two streams with different purposes are
// independent.
type Purpose uint32

// The purposes. Their numbers are part of what a seed means: add new ones at
// the end.
const (
	Holdout      Purpose = iota + 1 // rows held out
	Synthetic                       // generated data
	Subset                          // rows of the subset whose mode is found
	Start                           // a chain's starting point
	Probe                           // trace probes
	Stopping                        // ULISSE's stopping times
	Noise                           // a sampler's injected noise
	Accept                          // Metropolis–Hastings proposals and decisions
	Pivot                           // a preconditioner's random choices
	Calibration                     // right-hand sides that only measure
	Auxiliary                       // the auxiliary variable of the exact sampler
	Provisional                     // draws before the chains have any
	Predictive                      // values of the target drawn from the posterior
	Climb                           // where searches for maxima begin
	Learn                           // points where the determinant is learnt
	Learnt                          // draws of a learnt density, and fits to them
	Propose                         // proposals of chains
	Deviation                       // draws of the determinant's error
	LeftOut                         // rows that are left out in turn
	Path                            // sample paths, and the draws that they are of
	Averaged                        // rows that effects are averaged over
	Prior                           // parameters and functions drawn from the prior
	Folds                           // rows that are left out together
	Augmentation                    // auxiliary variables of a likelihood
	Latent                          // latent functions, given everything else
	Inducing                        // inducing inputs of sparse approximations
	Frequencies                     // of random features
	Weights                         // of random features, and the functions of hidden layers
	Minibatch                       // rows of a step
)

// Key names a stream.
type Key struct {
	Seed  uint64
	Chain int // 0 for what belongs to no chain; chains count from 1
	Iter  int
}

// Stream returns the key's stream for the given purpose; index separates
// several of the same purpose, such as the probes of one gradient.
func (k Key) Stream(p Purpose, index int) *rand.Rand {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[0:], k.Seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(k.Chain))
	binary.LittleEndian.PutUint64(key[16:], uint64(k.Iter))
	binary.LittleEndian.PutUint32(key[24:], uint32(p))
	binary.LittleEndian.PutUint32(key[28:], uint32(index))
	return rand.New(rand.NewChaCha8(key))
}

// Place returns a number that tells points apart, for streams that belong to one: the FNV-1a hash of its coordinates' bits.
func Place(x []float64) uint64 {
	h, b := fnv.New64a(), make([]byte, 8)
	for _, v := range x {
		binary.LittleEndian.PutUint64(b, math.Float64bits(v))
		_, _ = h.Write(b) // never fails
	}
	return h.Sum64()
}

// Normal fills dst with independent standard normals.
func Normal(r *rand.Rand, dst []float64) {
	for i := range dst {
		dst[i] = r.NormFloat64()
	}
}

// Rademacher fills dst with independent signs ±1, 64 to a random word.
func Rademacher(r *rand.Rand, dst []float64) {
	var bits uint64
	for i := range dst {
		if i%64 == 0 {
			bits = r.Uint64()
		}
		dst[i] = 1 - 2*float64(bits&1)
		bits >>= 1
	}
}
