// Package health finds out what is wrong with jobs that are at work: nothing
// comes from them (stalled), or what comes from them will not do (diverging).
//
// A job that computes at all is heard of after every gradient (its log lines) and
// every checkpoint, so that a chain's own pace tells how long its silence may
// last. Whether its draws will do is read off its run: where its chains are,
// what its gradients cost, whether its chains come to agree.
package health
