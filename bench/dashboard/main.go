// Command dashboard measures how fast the dashboard answers when there is much to
// show: many jobs, one of them of many chains and draws, with browsers that
// listen. The coordinator is real but for its replication: its state is a
// database of one node, filled with the events that drivers would report.
//
//	go run ./bench/dashboard -jobs 200 -chains 64 -draws 100000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/coordinator"
	"github.com/ulisse-gp/ulisse/internal/dashboard"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/state"
)

var (
	jobs      = flag.Int("jobs", 200, "jobs, half of them at work")
	nchains   = flag.Int("chains", 64, "chains of the large job")
	draws     = flag.Int("draws", 100_000, "draws of the large job, of all chains")
	requests  = flag.Int("requests", 100, "requests of each page")
	listeners = flag.Int("listeners", 20, "browsers that listen to the large job")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// node is a replicated state of one node, without a log.
type node struct {
	db      *bbolt.DB
	machine *state.Machine
	mu      sync.Mutex
	index   uint64
	changed chan struct{}
}

func (n *node) ID() string                                { return "bench" }
func (n *node) View(f func(*bbolt.Tx) error) error        { return n.db.View(f) }
func (n *node) IsLeader() bool                            { return true }
func (n *node) Leader() (string, string)                  { return "bench", "" }
func (n *node) Age() time.Duration                        { return 0 }
func (n *node) WaitApplied(context.Context, uint64) error { return nil }

func (n *node) ReadIndex(context.Context) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.index, nil
}

func (n *node) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

func (n *node) Apply(_ context.Context, command []byte) (out any, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.index++
	err = n.db.Update(func(tx *bbolt.Tx) error {
		out = n.machine.Apply(tx, n.index, command)
		err, _ := out.(error)
		return err
	})
	close(n.changed)
	n.changed = make(chan struct{})
	return out, err
}

// do applies a command.
func (n *node) do(c state.Command) error {
	text, err := state.Encode(time.Now().UTC(), c)
	if err != nil {
		return err
	}
	_, err = n.Apply(context.Background(), text)
	return err
}

const spec = `
name: job-%d
data: {path: table.csv, target: y}
sampler: {method: fisher, chains: %d, warmup: 1, draws: 1000000, checkpoint: 50}
stop: {max_draws: 10000000}
`

// fill makes a job with draws, by the events that its drivers would report.
func (n *node) fill(i, nchains, draws int) (string, error) {
	id := fmt.Sprintf("job%d", i)
	s, err := job.ParseString(fmt.Sprintf(spec, i, nchains))
	if err != nil {
		return "", err
	}
	text, err := s.YAML()
	if err != nil {
		return "", err
	}
	info := &dataset.Info{Rows: 1000, SHA256: id, InputNames: []string{"a", "b", "c"}, XScale: make([]dataset.Scale, 3), YScale: dataset.Scale{SD: 1}, Target: "y"}
	m, err := s.KernelModel(info)
	if err != nil {
		return "", err
	}
	plan := s.Plan(m.Names(), 1000)
	places := []state.Move{{Chain: 0, Worker: "w"}}
	for c := range nchains {
		places = append(places, state.Move{Chain: c + 1, Worker: "w"})
	}
	prep := &chains.Prepared{Psi: make([]float64, 3), Cov: []float64{1, 0, 0, 0, 1, 0, 0, 0, 1}}
	for range nchains {
		prep.Starts = append(prep.Starts, make([]float64, 3))
	}
	for _, c := range []state.Command{
		&state.Submit{ID: id, Name: s.Name, Spec: string(text), Chains: nchains},
		&state.Place{Job: id, Places: places},
		&state.Loaded{Job: id, Attempt: 1, Info: info, Plan: &plan, InstructionSet: "avx512"},
	} {
		if err := n.do(c); err != nil {
			return "", fmt.Errorf("%s: %w", id, err)
		}
	}
	run := chains.New(plan)
	report := func(c int, e chains.Event) error {
		text, err := e.Encode()
		return errors.Join(err, run.Apply(e), n.do(&state.Report{Job: id, Chain: c, Attempt: 1, Events: [][]byte{text}}))
	}
	if err := report(0, chains.Event{Prepared: prep}); err != nil {
		return "", err
	}
	for w := range len(plan.Windows) + 1 {
		e := chains.Event{Settings: &chains.Settings{Window: w, C: prep.Cov, Probes: 4, Step: 0.8, Budget: 0.4}}
		text, err := e.Encode()
		if err := errors.Join(err, run.Apply(e), n.do(&state.Decide{Job: id, Event: text})); err != nil {
			return "", err
		}
		for c := 1; c <= nchains && w < len(plan.Windows); c++ {
			t, _ := run.Task(c)
			if err := report(c, checkpoint(t, rand.New(rand.NewPCG(1, 1)))); err != nil {
				return "", err
			}
		}
	}
	for c := range nchains {
		r := rand.New(rand.NewPCG(uint64(i), uint64(c)))
		for len(run.Chains[c].Draws) < draws/nchains {
			t, ok := run.Task(c + 1)
			if !ok { // it would wait for slower chains, which come
				t = chains.Task{Chain: c + 1, From: run.Chains[c].State, Settings: *run.Settings, Iterations: plan.Checkpoint}
			}
			if err := report(c+1, checkpoint(t, r)); err != nil {
				return "", fmt.Errorf("%s, chain %d: %w", id, c+1, err)
			}
		}
	}
	return id, nil
}

// checkpoint is what a task might have come to.
func checkpoint(t chains.Task, r *rand.Rand) chains.Event {
	k := &chains.Checkpoint{Chain: t.Chain, FromIter: t.From.Iter, State: t.From, Cost: chains.Cost{Gradients: 50, Solves: 250, Iterations: 2250, Seconds: 1}}
	k.Vitals.Add(1e-6, 0.5)
	k.State.Iter += t.Iterations
	for range t.Iterations {
		k.Draws = append(k.Draws, []float64{r.NormFloat64(), r.NormFloat64(), r.NormFloat64()})
	}
	k.State.Psi = slices.Clone(k.Draws[len(k.Draws)-1])
	return chains.Event{Checkpoint: k}
}

func run() error {
	dir, err := os.MkdirTemp("", "dashboard")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := bbolt.Open(filepath.Join(dir, "state.db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		return err
	}
	defer db.Close()
	n := &node{db: db, machine: state.NewMachine(), changed: make(chan struct{})}
	if err := db.Update(n.machine.Init); err != nil {
		return err
	}
	for i := range *jobs - 1 {
		id, err := n.fill(i, 4, 2000)
		if err != nil {
			return err
		}
		if i%2 == 0 {
			if err := n.do(&state.Fail{Job: id, Message: "ended"}); err != nil {
				return err
			}
		}
	}
	large, err := n.fill(*jobs, *nchains, *draws)
	if err != nil {
		return err
	}
	coord, err := coordinator.New(coordinator.Config{Node: n, Machine: n.machine, Dir: dir})
	if err != nil {
		return err
	}
	defer coord.Close()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(coord.Forward), grpc.StreamInterceptor(coord.ForwardStream))
	coord.Register(s)
	go s.Serve(lis)
	defer s.Stop()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Printf("%d jobs, one of %d chains and %d draws; %.0f MB before anybody looks\n", *jobs, *nchains, *draws, megabytes())
	d, err := dashboard.New(dashboard.Config{Conn: conn})
	if err != nil {
		return err
	}
	defer d.Close()
	web := httptest.NewServer(d)
	defer web.Close()
	return measure(web.URL, large)
}

// measure asks for pages and plots.
func measure(url, large string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	get := func(path string) (time.Duration, int64, error) {
		began := time.Now()
		resp, err := client.Get(url + path)
		if err != nil {
			return 0, 0, err
		}
		defer resp.Body.Close()
		size, err := io.Copy(io.Discard, resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", path, resp.Status)
		}
		return time.Since(began), size, err
	}
	first, _, err := get("/jobs/" + large)
	if err != nil {
		return err
	}
	fmt.Printf("the large job's page, the first time: %v\n", first.Round(time.Millisecond))
	for range *listeners {
		go func() {
			r, _ := http.NewRequestWithContext(ctx, "GET", url+"/events/jobs/"+large, nil)
			if resp, err := client.Do(r); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
	}
	fmt.Printf("\n| | first / ms | median / ms | p99 / ms | kB |\n|---|---|---|---|---|\n")
	paths := []string{"/jobs", "/jobs/" + large, "/jobs/job0"}
	for _, p := range []string{"trace", "density", "rank", "rhat", "mean", "autocorrelation", "pairs", "solver", "noise"} {
		paths = append(paths, "/jobs/"+large+"/plots/"+p+".svg")
	}
	for _, path := range paths {
		first, size, err := get(path)
		if err != nil {
			return err
		}
		var took []float64
		for range *requests {
			t, _, err := get(path)
			if err != nil {
				return err
			}
			took = append(took, t.Seconds()*1000)
		}
		slices.Sort(took)
		fmt.Printf("| `%s` | %.0f | %.1f | %.1f | %d |\n", path, first.Seconds()*1000, took[len(took)/2], took[len(took)*99/100], size/1000)
	}
	fmt.Printf("\n%.0f MB with %d browsers that listen\n", megabytes(), *listeners)
	return nil
}

// megabytes returns the memory in use after a collection.
func megabytes() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}
