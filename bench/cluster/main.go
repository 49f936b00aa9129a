// Command cluster measures what a coordinator keeps and how long it takes: the
// bytes of its log and state, snapshots and restarts, and the answers to clients,
// with a thousand finished jobs.
//
//	go run ./bench/cluster
//
// The jobs are made up but go the way of real ones: the same commands through a
// cluster.Node on disk, with the checkpoints that drivers would report. A small
// real job is run besides, for its bytes and for two numbers of rows, to show
// that the log does not grow with the data.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/rpc"
)

func main() {
	log.SetFlags(0)
	jobs := flag.Int("jobs", 1000, "finished jobs")
	draws := flag.Int("draws", 500, "draws of each of their chains")
	batch := flag.Int("batch", 4, "checkpoints in a report of theirs (a driver sends up to 8, those that wait)")
	reps := flag.Int("reps", 101, "calls of each kind")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "ulisse-bench")
	if err != nil {
		log.Fatal(err)
	}
	for _, part := range []func() error{
		func() error { return perDraw(ctx, filepath.Join(dir, "one")) },
		func() error { return realJobs(ctx, dir) },
		func() error { return thousand(ctx, filepath.Join(dir, "many"), *jobs, *draws, *batch, *reps) },
	} {
		if err = part(); err != nil {
			break
		}
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
}

// perDraw measures the bytes of a job's draws, one checkpoint in a report: the
// most that they can take.
func perDraw(ctx context.Context, dir string) error {
	n, err := open(ctx, dir)
	if err != nil {
		return err
	}
	const draws = 5000
	if err := errors.Join(n.job(ctx, "a", draws, 1), n.Close()); err != nil {
		return err
	}
	fmt.Printf("a job of 4 chains of %d draws, 3 parameters, checkpoint 20, each in a report of its own:\n", draws)
	return tell(dir, 4*draws)
}

// realJobs runs a job on a coordinator and a worker, with few and with more rows.
func realJobs(ctx context.Context, dir string) error {
	for _, rows := range []int{200, 800} {
		dir := filepath.Join(dir, fmt.Sprint("real-", rows))
		draws, err := run(ctx, dir, rows)
		if err != nil {
			return err
		}
		fmt.Printf("a real job of %d rows, %d draws:\n", rows, draws)
		if err := tell(filepath.Join(dir, "raft"), draws); err != nil {
			return err
		}
	}
	return nil
}

// thousand measures a coordinator with many finished jobs.
func thousand(ctx context.Context, dir string, jobs, draws, batch, reps int) error {
	raft := filepath.Join(dir, "raft")
	n, err := open(ctx, raft)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := n.jobs(ctx, jobs, draws, batch); err != nil {
		return errors.Join(err, n.Close())
	}
	fmt.Printf("%d jobs of 4 chains of %d draws, made in %.0f s:\n", jobs, draws, time.Since(began).Seconds())
	if _, err := n.Snapshot(ctx), n.Close(); err != nil { // what raft has taken by itself
		return err
	}
	if n, err = open(ctx, raft); err != nil {
		return err
	}
	if err := n.Barrier(ctx); err != nil {
		return errors.Join(err, n.Close())
	}
	began = time.Now()
	err = n.Snapshot(ctx)
	took := time.Since(began)
	if err := errors.Join(err, n.Close()); err != nil {
		return err
	}
	if err := tell(raft, 4*draws*jobs); err != nil {
		return err
	}
	fmt.Printf("  snapshot: %.2f s; two take %.1f MB\n", took.Seconds(), size(filepath.Join(raft, "snapshots")))
	began = time.Now()
	if n, err = open(ctx, raft); err != nil {
		return err
	}
	fmt.Printf("  restart, to the first consistent read: %.2f s\n", time.Since(began).Seconds())
	if err := n.Close(); err != nil {
		return err
	}
	return calls(ctx, dir, reps)
}

// calls measures how long clients wait.
func calls(ctx context.Context, dir string, reps int) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	began := time.Now()
	address := make(chan string, 1)
	failed := make(chan error, 1)
	wg.Go(func() { failed <- coordinator(dir, address).Run(ctx) })
	var at string
	select {
	case at = <-address:
	case err := <-failed:
		return err
	}
	conn, err := rpc.Dialer(nil)(at)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := pb.NewJobsClient(conn)
	if err := answers(ctx, c); err != nil {
		return err
	}
	fmt.Printf("  coordinator, to its first answer: %.2f s\n", time.Since(began).Seconds())
	list, err := c.List(ctx, &pb.ListJobsRequest{})
	if err != nil {
		return err
	}
	first := time.Now()
	if _, err := c.Get(ctx, &pb.GetJobRequest{Id: list.Jobs[0].Id}); err != nil {
		return err
	}
	fmt.Printf("  first look at a job that has ended (its run is replayed): %.1f ms\n", 1e3*time.Since(first).Seconds())
	for _, k := range []struct {
		name string
		call func(i int) error
	}{
		{"List, all", func(int) error { _, err := c.List(ctx, &pb.ListJobsRequest{}); return err }},
		{"List, a page of 20", func(int) error { _, err := c.List(ctx, &pb.ListJobsRequest{PageSize: 20}); return err }},
		{"List, stale", func(int) error { _, err := c.List(ctx, &pb.ListJobsRequest{PageSize: 20, Stale: true}); return err }},
		{"Get", func(int) error { _, err := c.Get(ctx, &pb.GetJobRequest{Id: list.Jobs[0].Id}); return err }},
		{"Submit", func(i int) error {
			_, err := c.Submit(ctx, &pb.SubmitRequest{Spec: specText(100 + i)})
			return err
		}},
	} {
		took := make([]float64, reps)
		for i := range took {
			began := time.Now()
			if err := k.call(i); err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			took[i] = 1e3 * time.Since(began).Seconds()
		}
		slices.Sort(took)
		fmt.Printf("  %-20s median %.1f ms, 95%% within %.1f ms\n", k.name, took[reps/2], took[reps*95/100])
	}
	return nil
}

// answers waits until there is a leader.
func answers(ctx context.Context, c pb.JobsClient) error {
	for {
		_, err := c.List(ctx, &pb.ListJobsRequest{PageSize: 1})
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(10 * time.Millisecond)
	}
}
