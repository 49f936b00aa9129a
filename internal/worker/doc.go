// Package worker computes. A worker keeps a session with the leading
// coordinator, which tells it which chains to drive; it fetches their data,
// carries out their tasks (package driver), and reports the results. What it
// has not been able to report is lost with it: another worker computes it anew,
// to the same bits.
//
// A driver need not wait for a checkpoint to be durable before it goes on to
// the next: up to pipeline checkpoints are under way, so that a coordinator
// that is slow, or gone for a while, stops nobody. When they are that many, or
// the chain stands at a barrier, the driver waits.
package worker
