// Package dev runs a whole cluster as child processes on this machine, for
// trying and for tests. A child that dies is started again; the addresses stay.
package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/client"
)

// Config says what to run.
type Config struct {
	Dir          string // state, logs, env and processes.json
	Binary       string // of ulisse
	Coordinators int
	Workers      int
	Cores        int // of each worker; 0: as many as there are, divided by the workers
	Restart      bool
	TLS          bool // with certificates made for the purpose; else plaintext
	Tokens       bool // callers are asked for one; the user's is in env
	Logger       *slog.Logger
	// More arguments for all coordinators and workers.
	CoordinatorArgs, WorkerArgs []string
}

// Process is an entry of processes.json.
type Process struct {
	Role      string    `json:"role"` // coordinator or worker
	Name      string    `json:"name"`
	PID       int       `json:"pid"`
	Addresses Addresses `json:"addresses"`
	args      []string
}

// Addresses are where a process listens.
type Addresses struct {
	GRPC string `json:"grpc,omitempty"`
	HTTP string `json:"http,omitempty"` // of coordinators
	Raft string `json:"raft,omitempty"` // of coordinators
	// Metrics is the private port, for metrics and probes.
	Metrics string `json:"metrics,omitempty"`
}

// The files in Dir that others read.
const (
	envFile       = "env"
	processesFile = "processes.json"
)

// stopTime is what children have to end in peace, restartAfter the pause before
// one that died is started again.
const (
	stopTime     = 15 * time.Second
	restartAfter = 500 * time.Millisecond
)

// cluster is a running cluster.
type cluster struct {
	Config
	token string // of the administrator; empty if nobody is asked
	mu    sync.Mutex
	procs []*Process
}

// Run runs the cluster until ctx is done. ready is called once all children
// have been started and, with Tokens, the user's is known.
func Run(ctx context.Context, c Config, ready func([]Process)) error {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return err
	}
	c.Dir = dir
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	cl := &cluster{Config: c}
	if err := cl.layOut(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	start := func(procs []*Process) error {
		started := make(chan struct{}, len(procs))
		for _, p := range procs {
			wg.Go(func() {
				if err := cl.keep(ctx, p, started); err != nil {
					cancel(err)
				}
			})
		}
		for range procs {
			select {
			case <-started:
			case <-ctx.Done():
				return cause(ctx)
			}
		}
		return nil
	}
	err = start(cl.procs[:c.Coordinators])
	if err == nil && c.Tokens {
		err = cl.tokens(ctx)
	}
	if err == nil {
		err = start(cl.procs[c.Coordinators:])
	}
	if err == nil {
		err = cl.write()
	}
	switch {
	case ctx.Err() != nil:
		return cause(ctx)
	case err != nil:
		cancel(err)
		return err
	}
	if ready != nil {
		cl.mu.Lock()
		out := make([]Process, len(cl.procs))
		for i, p := range cl.procs {
			out[i] = *p
		}
		cl.mu.Unlock()
		ready(out)
	}
	<-ctx.Done()
	return cause(ctx)
}

// cause returns why a cluster ended: nil if it was told to.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// layOut chooses the addresses and the arguments of the children, and makes their certificates and
// the administrator's token.
func (c *cluster) layOut() error {
	if err := c.place(); err != nil {
		return err
	}
	keys := filepath.Join(c.Dir, tlsFolder)
	if c.TLS {
		if err := certificates(keys, "127.0.0.1"); err != nil {
			return err
		}
	}
	if c.Tokens {
		var err error
		if c.token, err = c.adminToken(); err != nil {
			return err
		}
	}
	for _, p := range c.procs {
		p.args = c.arguments(p, keys)
	}
	return nil
}

// place gives each child its addresses: those of an earlier cluster in the same folder, if there was
// one, else free ones.
func (c *cluster) place() error {
	var old []Process
	if text, err := os.ReadFile(filepath.Join(c.Dir, processesFile)); err == nil {
		if err := json.Unmarshal(text, &old); err != nil {
			return fmt.Errorf("%s: %w", processesFile, err)
		}
		coordinators := 0
		for _, p := range old {
			if p.Role == "coordinator" {
				coordinators++
			}
		}
		if coordinators != c.Coordinators {
			return fmt.Errorf("%s holds a cluster of %d coordinators, not %d: choose another folder", c.Dir, coordinators, c.Coordinators)
		}
	}
	before := map[string]Addresses{}
	taken := map[string]bool{"": true}
	for _, p := range old {
		before[p.Name] = p.Addresses
		for _, a := range p.Addresses.all("coordinator") {
			taken[*a] = true
		}
	}
	for i := range c.Coordinators + c.Workers {
		p := &Process{Role: "coordinator", Name: fmt.Sprintf("coordinator-%d", i+1)}
		if i >= c.Coordinators {
			p.Role, p.Name = "worker", fmt.Sprintf("worker-%d", i-c.Coordinators+1)
		}
		p.Addresses = before[p.Name]
		for _, a := range p.Addresses.all(p.Role) {
			if *a != "" {
				continue
			}
			var err error
			if *a, err = freeAddress(taken); err != nil {
				return err
			}
		}
		c.procs = append(c.procs, p)
	}
	return nil
}

// all returns the addresses that a process of a role has.
func (a *Addresses) all(role string) []*string {
	if role == "coordinator" {
		return []*string{&a.GRPC, &a.Metrics, &a.HTTP, &a.Raft}
	}
	return []*string{&a.GRPC, &a.Metrics}
}

// freeAddress returns a loopback address that nobody listens on and that is not taken, and takes it.
func freeAddress(taken map[string]bool) (string, error) {
	at := ""
	for taken[at] { // a port that is closed may be the next one that is found
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		at = l.Addr().String()
		l.Close()
	}
	taken[at] = true
	return at, nil
}

// arguments are those that a child is started with.
func (c *cluster) arguments(p *Process, keys string) []string {
	args := []string{p.Role, "--id", p.Name, "--dir", filepath.Join(c.Dir, p.Name), "--listen", p.Addresses.GRPC, "--metrics", p.Addresses.Metrics}
	if c.TLS {
		args = append(args, tlsArgs(keys, p.Role)...)
	}
	if p.Role == "worker" {
		args = append(args, "--coordinators", strings.Join(c.addresses(), ","), "--cores", strconv.Itoa(c.Cores))
		args = append(args, c.WorkerArgs...)
		if c.Tokens && !c.TLS {
			args = append(args, "--token-file", filepath.Join(c.Dir, workerFile))
		}
		return args
	}
	var raft []string
	for _, p := range c.procs[:c.Coordinators] {
		raft = append(raft, p.Addresses.Raft)
	}
	args = append(args, "--http", p.Addresses.HTTP, "--raft", p.Addresses.Raft, "--bootstrap-expect", strconv.Itoa(c.Coordinators),
		"--peers", strings.Join(raft, ","))
	if c.Tokens {
		args = append(args, "--auth", "tokens", "--bootstrap-token-file", filepath.Join(c.Dir, adminFile))
	}
	return append(args, c.CoordinatorArgs...)
}

// keep runs a child, again and again if it dies.
func (c *cluster) keep(ctx context.Context, p *Process, started chan<- struct{}) error {
	runtime.LockOSThread() // a child is told of the death of the thread that made it
	defer runtime.UnlockOSThread()
	log, err := os.OpenFile(filepath.Join(c.Dir, p.Name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	for first := true; ; first = false {
		cmd := exec.CommandContext(ctx, c.Binary, p.args...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.Env = slices.DeleteFunc(os.Environ(), ofClient)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = stopTime
		cmd.SysProcAttr = childAttr()
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("starting %s: %w", p.Name, err)
		}
		c.mu.Lock()
		p.PID = cmd.Process.Pid
		c.mu.Unlock()
		if first {
			started <- struct{}{}
		} else if err := c.write(); err != nil {
			return err
		}
		err := cmd.Wait()
		if ctx.Err() != nil {
			return nil
		}
		c.Logger.Warn("a process ended", "name", p.Name, "error", err)
		if !c.Restart {
			return nil
		}
		select {
		case <-time.After(restartAfter):
		case <-ctx.Done():
			return nil
		}
	}
}

// ofClient reports whether a variable points a client at a cluster: at another
// one, maybe.
func ofClient(v string) bool {
	name, _, _ := strings.Cut(v, "=")
	return slices.Contains([]string{client.EnvConfig, client.EnvContext, client.EnvCoordinators, client.EnvToken, client.EnvNamespace,
		client.EnvTLSCert, client.EnvTLSKey, client.EnvTLSCA, client.EnvTLSCRL}, name)
}

// write writes processes.json, then env: who sees env can read both. Of two processes that start at once the
// later one writes last.
func (c *cluster) write() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := json.MarshalIndent(c.procs, "", "  ")
	if err != nil {
		return err
	}
	env := fmt.Sprintf("export ULISSE_COORDINATORS=%s\n", strings.Join(c.addresses(), ","))
	if c.TLS {
		env += tlsEnv(filepath.Join(c.Dir, tlsFolder))
	}
	if c.token != "" {
		env += "export ULISSE_TOKEN=" + c.token + "\n"
	}
	if err := atomicfile.WriteBytes(filepath.Join(c.Dir, processesFile), 0o644, append(text, '\n')); err != nil {
		return err
	}
	return writeSecret(filepath.Join(c.Dir, envFile), strings.TrimSuffix(env, "\n"))
}

// addresses are those of the coordinators.
func (c *cluster) addresses() (grpc []string) {
	for _, p := range c.procs[:c.Coordinators] {
		grpc = append(grpc, p.Addresses.GRPC)
	}
	return grpc
}
