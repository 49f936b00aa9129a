package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/shard"
)

// ofProcess is about what a process takes with nothing to do.
const ofProcess = 32 << 20

// peak returns the most memory, in MB, that a process had at a time.
func peak(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return math.NaN()
	}
	_, text, _ := strings.Cut(string(status), "VmHWM:")
	var kb float64
	fmt.Sscan(text, &kb)
	return kb * 1024 / 1e6
}

// buildOver measures how long groups of some sizes take to build a preconditioner, and what memory each process comes to. A size is a run of the command: peaks do
// not go down.
func (o *options) buildOver(n, size int) error {
	ctx, rank := context.Background(), int(o.rank*math.Sqrt(float64(n)))
	a := shard.Apply{Rows: n, Rank: rank}
	inputs := 8 * float64(n) * float64(2*o.d+1) // as they are and scaled
	driver, member := inputs+a.Own(size)+a.BuildingBytes(), inputs+a.Held(size)+a.SeedBytes()
	if size > 1 {
		o.limit = ofProcess + int64(member)
		debug.SetMemoryLimit(ofProcess + int64(driver))
	}
	w, err := o.workers(n, size-1)
	if err != nil {
		return err
	}
	base := &problem{options: o, in: o.inputs(n)}
	op := base.operator()
	var k precond.Covariance = op
	if size > 1 {
		g := w.group(op, size)
		k = g
		defer g.Close()
	}
	k.(operator).Set(theta, noise)
	debug.FreeOSMemory()
	cpu, began := cputime.Seconds(), time.Now()
	pre, err := precond.BuildAny(ctx, "rpcholesky", k, rank, random.Key{Seed: 1})
	if err != nil {
		return err
	}
	took, used := time.Since(began), cputime.Seconds()-cpu
	most := 0.0
	var sent float64
	for _, m := range w.members[:size-1] {
		u, err := m.usage()
		if err != nil {
			return err
		}
		used += u.CPU
		sent += u.In
		most = max(most, peak(m.cmd.Process.Pid))
	}
	fmt.Printf("n %d, rank %d (%.0f MB), %d members: %.1f s, %.1f processor seconds, %.1f MB to members, driver %.0f MB (planned %.0f), member %.0f MB at most (planned %.0f), log|P| %.17g\n",
		n, pre.Rank(), 8*float64(n)*float64(pre.Rank())/1e6, size, took.Seconds(), used, sent/1e6, peak(os.Getpid()), driver/1e6, most, member/1e6, pre.(*precond.LowRank).LogDet())
	return w.stop()
}
