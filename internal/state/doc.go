// Package state is what a cluster remembers: jobs, where their chains are
// placed, what the chains have reported, which data sets there are, and who may
// use the cluster. It lives in a bbolt database that the coordinators replicate
// (package cluster); every change is a Command, applied in the same order
// everywhere.
//
// # What is in a job
//
// A job is its record (specification, phase, placements) and the events of its
// run (package chains), in order, as they were received. The run itself is never
// stored: it is rebuilt from the events. A Machine keeps the runs of the jobs
// whose events it applies, one of each; a Follower sees them as of a committed
// state. So a leader, a server of draws and a test all see the run that a journal
// would give.
//
// # Rules of Apply
//
// Replicas must agree to the last bit, whatever machine they run on. A command
// therefore carries everything that needs a clock, a random number, or
// arithmetic beyond sums: the time, ids, the plan, the settings of the next
// window, the end of a run with the hash of its draws. Those are computed by
// the leader (package coordinator). A command that does not fit the state, such
// as the report of a driver that was replaced, is refused with an error and
// changes nothing.
//
// # Fencing
//
// Chain c of a job (0 is the preparation) has one placement at a time, whose
// attempt number grows when another driver takes over. A report of an older
// attempt is refused, so a driver that was cut off and comes back cannot mix
// its checkpoints with its successor's.
//
// # A new command
//
// A command is a struct with its fields as JSON and a method apply, in one file;
// its constructor goes into commands under a name that stays what it is. One that
// changes a job does so by transaction.update, which keeps the job's record,
// notes and notices. If the release before does not know the command, Format says
// what else to do.
package state
