package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cluster"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/server"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// node is the replicated state of a coordinator that is alone.
type node struct{ *cluster.Node }

// open starts a node and waits until a consistent read is possible.
func open(ctx context.Context, dir string) (*node, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n, err := cluster.Open(cluster.Config{ID: "a", Dir: dir, Machine: state.NewMachine(), Listener: lis, Advertise: lis.Addr().String(),
		BootstrapExpect: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	for {
		if _, err := n.ReadIndex(ctx); err == nil {
			return &node{n}, nil
		}
		select {
		case <-n.Changed():
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			n.Close()
			return nil, ctx.Err()
		}
	}
}

// specText is a job of n rows.
func specText(rows int) string {
	return fmt.Sprintf(`
name: bench
data: {synthetic: {n: %d, d: 3, sigma: 1, tau: 0.3, lambda: 0.05, seed: 5}}
sampler: {method: fisher, chains: 4, draws: 500, checkpoint: 20}
stop: {rhat: 1.01, ess: 1e9, max_draws: 500, max_time: 1h}
`, rows)
}

// jobs makes finished jobs, many at a time.
func (n *node) jobs(ctx context.Context, jobs, draws, batch int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(64)
	for i := range jobs {
		g.Go(func() error { return n.job(ctx, fmt.Sprintf("job-%05d", i), draws, batch) })
	}
	return g.Wait()
}

// job takes a job from its submission to its end by the commands that a cluster
// would give, batch checkpoints in a report.
func (n *node) job(ctx context.Context, id string, draws, batch int) error {
	spec, err := job.ParseString(specText(500))
	if err != nil {
		return err
	}
	spec.Sampler.Draws, spec.Stop.MaxDraws = draws, draws
	text, err := spec.YAML()
	if err != nil {
		return err
	}
	plan := spec.Plan([]string{"sigma", "tau", "lambda"}, 1000)
	run := chains.New(plan)
	apply := func(c state.Command) error {
		text, err := state.Encode(time.Now().UTC(), c)
		if err == nil {
			_, _, err = n.Apply(ctx, text)
		}
		return err
	}
	decide := func(e chains.Event, sha string) error {
		text, err := e.Encode()
		if err != nil {
			return err
		}
		return apply(&state.Decide{Job: id, Event: text, DrawsSHA256: sha, Final: &state.Final{Draws: draws, RHat: 1.01, ESS: 1000}})
	}
	hand := func(chain int, events ...chains.Event) error {
		encoded, err := state.EncodeEvents(events...)
		if err != nil {
			return err
		}
		return apply(&state.Report{Job: id, Chain: chain, Attempt: 1, Events: encoded})
	}
	prepared := chains.Event{Prepared: &chains.Prepared{Psi: numbers(3), Cov: identity(), ProbeCov: identity(),
		Starts: [][]float64{numbers(3), numbers(3), numbers(3), numbers(3)}, Cost: cost(20)}}
	place := &state.Place{Job: id, Places: []state.Move{{Chain: 1, Worker: "worker-1"}, {Chain: 2, Worker: "worker-2"},
		{Chain: 3, Worker: "worker-3"}, {Chain: 4, Worker: "worker-4"}}}
	info := &dataset.Info{Rows: 500, InputNames: []string{"x1", "x2", "x3"}, Target: "y",
		XScale: make([]dataset.Scale, 3), SHA256: fmt.Sprintf("%064x", 1)}
	for _, c := range []state.Command{
		&state.Submit{ID: id, Name: spec.Name, ClientID: "client-" + id, Spec: string(text), Chains: plan.Chains},
		&state.Place{Job: id, Places: []state.Move{{Chain: 0, Worker: "worker-1"}}},
		&state.Loaded{Job: id, Attempt: 1, Info: info, Plan: &plan, InstructionSet: "avx512"},
	} {
		if err := apply(c); err != nil {
			return err
		}
	}
	if err := errors.Join(run.Apply(prepared), hand(0, prepared), apply(place)); err != nil {
		return err
	}
	for run.Phase == chains.Warmup || run.MinDraws() < draws {
		if run.AtBarrier() {
			e, err := sampler.Adapt(run)
			if err != nil {
				return err
			}
			if err := run.Apply(*e); err != nil {
				return err
			}
			if err := decide(*e, ""); err != nil {
				return err
			}
		}
		for c := 1; c <= plan.Chains; c++ {
			var events []chains.Event
			for task, ok := run.Task(c); ok && len(events) < batch; task, ok = run.Task(c) {
				e := chains.Event{Checkpoint: checkpoint(task)}
				if err := run.Apply(e); err != nil {
					return err
				}
				events = append(events, e)
			}
			if len(events) == 0 {
				continue
			}
			if err := hand(c, events...); err != nil {
				return err
			}
		}
	}
	e := chains.Event{Stop: &chains.Stop{Reason: chains.MaxDraws, Draws: draws}}
	if err := run.Apply(e); err != nil {
		return err
	}
	return decide(e, report.DrawsSHA256(run))
}

// checkpoint is what a driver would report, with numbers by chance.
func checkpoint(t chains.Task) *chains.Checkpoint {
	k := &chains.Checkpoint{Chain: t.Chain, FromIter: t.From.Iter, State: chains.State{Iter: t.From.Iter + t.Iterations}, Cost: cost(t.Iterations)}
	for range t.Iterations {
		k.Draws = append(k.Draws, numbers(3))
	}
	k.State.Psi = k.Draws[len(k.Draws)-1]
	if t.Warmup {
		k.Stats = chains.Stats{Spreads: t.Iterations, ProbeCov: identity(), Products: 40 * t.Iterations}
	}
	return k
}

func cost(gradients int) chains.Cost {
	return chains.Cost{Gradients: gradients, Solves: 9 * gradients, Iterations: 100 * gradients, Products: 12 * gradients,
		Pairs: 1.5e6 * float64(gradients), Seconds: rand.Float64()}
}

func numbers(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = rand.NormFloat64()
	}
	return x
}

func identity() []float64 {
	x := numbers(9)
	for i := range x {
		x[i] *= 1e-3
	}
	x[0], x[4], x[8] = 1+x[0], 1+x[4], 1+x[8]
	x[3], x[6], x[7] = x[1], x[2], x[5]
	return x
}

// run runs a real job to its end, on a coordinator and a worker, and returns
// the number of its draws.
func run(ctx context.Context, dir string, rows int) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	address, failed := make(chan string, 1), make(chan error, 2)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { failed <- coordinator(dir, address).Run(ctx) })
	var at string
	select {
	case at = <-address:
	case err := <-failed:
		return 0, err
	}
	w := server.Worker{ID: "worker-1", Dir: filepath.Join(dir, "worker"), Coordinators: []string{at}, Listen: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler)}
	wg.Go(func() { failed <- w.Run(ctx) })
	conn, err := rpc.Dialer(nil)(at)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	c := pb.NewJobsClient(conn)
	if err := answers(ctx, c); err != nil {
		return 0, err
	}
	j, err := c.Submit(ctx, &pb.SubmitRequest{Spec: specText(rows)})
	for err == nil && j.State < pb.JobState_JOB_STATE_CONVERGED {
		select {
		case <-time.After(100 * time.Millisecond):
		case err := <-failed:
			return 0, err
		}
		j, err = c.Get(ctx, &pb.GetJobRequest{Id: j.Id})
	}
	if err != nil {
		return 0, err
	}
	if j.Message != "" {
		return 0, fmt.Errorf("the job ended: %s", j.Message)
	}
	return 4 * int(j.Progress.JudgedDraws), nil
}

// coordinator is one that is alone; its address is sent when it is ready.
func coordinator(dir string, address chan<- string) server.Coordinator {
	return server.Coordinator{ID: "a", Dir: dir, Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", BootstrapExpect: 1,
		Logger: slog.New(slog.DiscardHandler), Ready: func(grpc, _, _ string) { address <- grpc }}
}
