// Package coordinator decides for a cluster: it takes jobs, places their chains
// on workers, aggregates what the chains report, and ends runs. It never
// touches an n-vector.
//
// Every coordinator serves every RPC. What changes the state, and what only the
// leader knows (which workers are connected), is forwarded to the leader
// (forward.go); other reads are answered from the coordinator's own copy of the
// state, after it has caught up with the leader's (or at once, if a stale answer
// will do). Each service is a type of its own, in the file of its name.
//
// The leader runs one loop (term.go). Whenever the state or the set of workers
// changes, it brings its view of the jobs up to date, takes the decisions that
// are due (the settings at a barrier, the end of a run), compares where chains
// are with where they should be (package schedule), tells the workers the
// difference (registry.go), and checks the jobs' health (package health). All its
// decisions enter the replicated state as commands before anybody acts on them,
// so the next leader takes over in the middle of anything.
//
// The leader also keeps the score of workers that do not compute the same bits
// (disagreements.go), and has checkpoints computed twice (checks.go).
//
// Beside the loop a leader tells hooks what happened (package notify), and every
// coordinator keeps log lines of jobs (package joblog).
package coordinator
