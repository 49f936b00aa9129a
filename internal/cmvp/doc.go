// Package cmvp computes covariance matrix-vector products (CMVPs) and the
// gradient forms of a covariance matrix that is never stored: its elements
// are computed on the fly, tile by tile, from n·d scaled inputs.
//
//	Mul     dst = K·V                      n×s
//	Forms   Q_i = Σ_j u_jᵀ (∂K/∂ψ_i) v_j   all parameters in one pass
//	Cross   dst = K(X*,X)·V                m×s, no noise
//
// An Operator asks an Engine for them; the tiles of this machine's cores are one.
//
// # Order of summation
//
// The draws of a run must be the same bits whatever the number of threads,
// the number of workers or the split of rows between them, so the order in
// which the terms of a dot product are added is part of the definition of the
// product (Grid), and the contract of every engine:
//
//   - Rows are cut into tiles of TileRows and blocks of a whole number of
//     tiles. How many there are depends on n alone.
//   - An unordered pair of blocks {A,B}, A ≤ B, is one Task. Each of its tile
//     pairs (I,J), I ≤ J, is evaluated once, as rows I against columns J, and
//     serves both sides: K·V_J is added to the rows of I, and, unless I = J,
//     Kᵀ·V_I to the rows of J.
//   - Tasks are grouped into units, each of which has to do with a fraction of the
//     rows alone (see plan).
//   - Within a tile pair, a row of I adds its columns in increasing order in
//     each of a fixed number of lanes, which are then summed in a fixed order;
//     a row of J adds the rows of I in increasing order (package tile).
//   - Within a task, the sums of its tile pairs are added in increasing order
//     of I and J; within a unit, those of its tasks in increasing order of the other
//     block; a row's total is the sum over units in their order. All are in float64,
//     whatever the arithmetic inside the tiles.
//
// A column of the result does not depend on which other columns are computed
// with it. The number of lanes belongs to the instruction set, so bits agree
// between machines of one instruction set only (ISA).
//
// # Sums and products of leaves
//
// The covariance is an expression (kernel.Covariance). Each of its leaves has packed
// features of its own and evaluates its own strips of elements; a strip of K_f is
// made of these, element by element: the products of the terms' leaves, weighted by
// the terms' shares of the sum of the variances, the scale. So elements are 1 at
// most, in single precision too, and sums are multiplied by the scale at the end. A
// covariance of one leaf is that leaf's strips, without any other work. Gradient
// forms follow by the product rule in the same pass over the tiles (formSums).
//
// # Scaling
//
// The features of a leaf are inputs, scaled once for each θ so that what a kernel
// needs is a plain squared distance w = |z_i−z_j|², computed from differences, which makes it
// exact for equal points and accurate for close ones: z = (x−m)·√(τ·log₂e) for
// RBF, where g = 2^(−w), and z = (x−m)·√(cτ)·log₂e for a Matérn of rate c,
// where √w = a·log₂e and exp(−a) = 2^(−√w). The centre m cancels; it is there
// so that single precision does not lose what inputs such as years have in
// common.
package cmvp
