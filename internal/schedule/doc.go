// Package schedule says where the chains of jobs should be, and how many workers
// the jobs could use. Both are functions of their arguments alone.
//
// # Who computes
//
// Jobs are admitted whole, in the order of their priority, those at work first,
// then by the share that their namespace has, then by age: the first always,
// further ones while each of their chains finds a core of a worker that fits: of the
// instruction set that the job began with, with the memory, and none that has shown
// that it cannot do the job. Nobody overtakes: a large job that does not fit yet keeps
// those behind it from the workers that it waits for, or it would wait for ever. A job
// that no worker fits keeps nobody waiting.
//
// # Where
//
// Chains come before rows. Each chain gets the worker with the fewest chains for
// its cores, and stays there, unless its worker has others too and another worker
// has nothing to do. Workers that drive nothing join the groups of chains with
// many rows, whose products they share. Further lanes of staged runs (package chains)
// take the cores that chains leave over, one each, and give them up when chains come.
//
// # How a chain moves
//
// A plan never takes a chain from a worker and gives it to another at once: the
// worker is to let go first, at the chain's next checkpoint. So a plan says which
// placements stay; whoever acts on it revokes the others, and plans anew when the
// chains were released.
package schedule
