// Package shard splits the products of one chain over a group of workers. A
// Group is the covariance operator that solvers and gradients see; a Server is
// what the workers of the group run; between them is the gRPC service Tiles.
//
// # How a product is split
//
// Every worker holds all inputs, by the address of their content, so any worker
// can compute any part. The vectors are sent to each member once. The product is
// cut into some units for each member:
//
//   - K·V by ranges of rows, against all columns (cmvp.Operator.MulRows);
//   - gradient forms by ranges of tasks, pairs of blocks of rows, whose sums come
//     back for the driver to add up (FormsTasks, ReduceForms).
//
// Neither changes an order of summation, so the bits are those of the driver
// alone, whoever computes what. Forms still evaluate each pair of rows once.
// Products lose that: an element K_ij with i and j in different units is
// evaluated in both. U units of equal size evaluate 2−1/U times as many elements
// as one does; the multiplications with V, which are the larger part where there
// are many columns, are the same. docs/benchmarks.md has what it costs. To keep
// the symmetry a member would have to send back its sums for each pair of
// blocks, 64 times as many numbers, because adding some of them up before the
// others would change the order.
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
// are found by the symmetry of VᵀKV, those of forms by samples, and, where two have
// computed a unit, by comparing (verify.go); who they came from is put aside for an hour.
// What samples miss of forms, and single precision hides, is not found. Members are
// otherwise trusted to run this program on the same kind of processor, and a session
// is refused where that is not so.
package shard
