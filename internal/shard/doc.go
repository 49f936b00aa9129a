// Package shard splits the products of one chain over a group of workers. A
// Group is the covariance operator that solvers and gradients see; a Server is
// what the workers of the group run; between them is the gRPC service Tiles.
//
// # How a product is split
//
// Every worker holds all inputs, by the address of their content, so any worker
// can compute any part. What is computed are sums, which the driver adds up:
//
//   - of K·V those of the units of cmvp.Grid (MulUnits, ReduceUnits), for which a member
//     is sent the rows of the vectors that they need, once;
//   - of gradient forms those of tasks, pairs of blocks of rows (FormsTasks, ReduceForms),
//     for which each member is sent the vectors once.
//
// Each pair of rows is evaluated once, whoever does it, and the order of summation is
// that of the driver alone, so the bits are, too. The driver keeps the sums of all units
// until they are added up: 3 to 9 times n·s numbers. docs/benchmarks.md has what
// distribution costs. In a large group the members exchange vectors and sums among themselves instead
// (exchange.go for the driver, keeping.go for the members), of units or of parts of them (parts.go), and the driver gets rows that are added up, in the same
// order.
//
// The sums over rows of a sparse approximation are split by blocks of rows (pass.go).
//
// The factor L, n×m, of a preconditioner is multiplied by over the group, too (factor.go, matrix.go):
// of Lᵀ·V members compute the sums over chunks of rows, of L·V the rows. They hold the rows of L that
// they were sent; the driver has all.
//
// # Who computes what
//
// Units are pulled: a member takes the next when it is ready, so a faster one
// does more. When none is left, an idle member does one again that has been out
// for longer than usual, and the first answer counts: the bits are the same. A
// member that fails, answers what cannot be right, or does nothing while others
// do its work, costs the repetition of the units that it had, and gets no work
// for a second, then two, up to a minute. The driver itself is a member, which
// is never put aside: it can finish any product alone.
//
// An answer is checked for its product and θ, its length, its checksum, and for
// size: the largest K_ii bounds every |K_ij|, so that NaN, infinities and garbage of
// the wrong magnitude never come through. Numbers that are wrong but plausible
// are found by the symmetry of VᵀKV, against a column of the first product with each θ, which
// is computed twice; those of forms by samples, and, where two have
// computed a unit, by comparing (verify.go); those of products with L by checksums. Who they came from is put aside for an hour.
// What samples miss of forms, and single precision hides, is not found. Members are
// otherwise trusted to run this program on the same kind of processor, and a session
// is refused where that is not so.
package shard
