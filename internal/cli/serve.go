package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/dev"
	"github.com/ulisse-gp/ulisse/internal/server"
	"github.com/ulisse-gp/ulisse/internal/shard"
)

// logger returns where a server logs.
func (a *App) logger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, badInput(fmt.Errorf("--log-level %q: give debug, info, warn or error", level))
	}
	return slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: l})), nil
}

// hostname is the default id of a process: on Kubernetes, the pod's name.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// What coordinators and workers say of their private ports.
const (
	metricsUsage = "private `address` for metrics and probes; empty for none"
	otlpUsage    = "send OpenTelemetry traces to this `URL` (OTLP over gRPC; default: $OTEL_EXPORTER_OTLP_ENDPOINT, else nowhere)"
	pprofUsage   = "serve profiles under /debug/pprof/ of --metrics"
)

func (a *App) coordinatorCommand() *cobra.Command {
	var s server.Coordinator
	var told hookFlags
	var level string
	c := &cobra.Command{
		Use:   "coordinator",
		Short: "Run a coordinator",
		Long: `Run a coordinator: one of the 1, 3 or 5 processes that keep a cluster's jobs,
draws and data sets. Those that found a cluster together are all given the same
--bootstrap-expect; later ones are given 0 and join those that --peers names.`,
		Example: `  ulisse coordinator --dir state
  ulisse coordinator --id a --dir a --raft 10.0.0.1:7001 --listen 10.0.0.1:7000 \
    --bootstrap-expect 3 --peers 10.0.0.1:7001,10.0.0.2:7001,10.0.0.3:7001`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			s.ID = cmp.Or(s.ID, hostname())
			if s.Logger, err = a.logger(level); err != nil {
				return err
			}
			s.Files = orEnv(s.Files)
			if s.Hooks, err = told.hooks(); err != nil {
				return err
			}
			return s.Run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&s.ID, "id", "", "`name` of this coordinator, forever (default: the host's)")
	f.StringVar(&s.Dir, "dir", "ulisse-coordinator", "keep the state in this `folder`")
	f.StringVar(&s.Listen, "listen", "127.0.0.1:7000", "`address` for RPCs of clients, workers and coordinators")
	f.StringVar(&s.Advertise, "advertise", "", "`address` at which others reach --listen, if it is another")
	f.StringVar(&s.Raft, "raft", "127.0.0.1:7001", "`address` for the replication between coordinators")
	f.StringVar(&s.RaftAdvertise, "raft-advertise", "", "`address` at which others reach --raft; a name where addresses change")
	f.StringVar(&s.HTTP, "http", "127.0.0.1:7002", "`address` for the JSON API and probes, with TLS if --tls-cert is given; empty for none")
	f.StringSliceVar(&s.HTTPHosts, "http-hosts", nil, "more `names` under which --http is reached in plaintext; others are refused")
	f.StringSliceVar(&s.HTTPProxies, "http-proxies", nil, "`networks` of proxies before --http, whose X-Forwarded-For is believed: for rates and the audit log")
	f.StringVar(&s.Metrics, "metrics", "127.0.0.1:7003", metricsUsage)
	f.BoolVar(&s.Pprof, "pprof", false, pprofUsage)
	f.StringVar(&s.OTLP, "otlp", "", otlpUsage)
	told.flags(c)
	f.Int64Var(&s.LogBytes, "log-bytes", 1<<30, "`bytes` of the logs of all jobs that are kept; the oldest make room")
	f.IntVar(&s.BootstrapExpect, "bootstrap-expect", 1, "number of coordinators that found the cluster; 0 to join one")
	f.IntVar(&s.BootstrapIndex, "bootstrap-index", 0, "place of this one among the coordinators, from 0: those from --bootstrap-expect on join (a pod's ordinal)")
	f.StringSliceVar(&s.Peers, "peers", nil, "raft addresses of other coordinators, or a name that stands for all of them")
	f.DurationVar(&s.Grace, "grace", 10*time.Second, "time that a worker may be silent before its chains are given to others")
	f.DurationVar(&s.MemberGrace, "member-grace", 0, "time that a coordinator may be silent before it is removed; 0 for never")
	f.IntVar(&s.SplitRows, "split-rows", shard.DefaultSplitRows, "rows from which workers that drive no chain share the products of one; -1 for never")
	tlsFlags(c, f, &s.Files)
	f.StringVar(&s.HTTPFiles.Cert, "http-cert", "", "show the certificate of this `file` at --http, if not --tls-cert")
	f.StringVar(&s.HTTPFiles.Key, "http-key", "", "`file` with the private key of --http-cert")
	serverFlags(f, &s.Security)
	f.Int64Var(&s.DiskReserve, "disk-reserve", 1<<30, "`bytes` of the disk that uploads leave free")
	usersFlags(f, &s.Users)
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return c
}

func (a *App) workerCommand() *cobra.Command {
	var s server.Worker
	var r remote
	var level string
	c := &cobra.Command{
		Use:   "worker",
		Short: "Run a worker",
		Long: `Run a worker: it drives chains and computes rows of products for a cluster. On
SIGTERM it hands its chains back at their next checkpoints and leaves.`,
		Example: `  ulisse worker --coordinators 10.0.0.1:7000,10.0.0.2:7000 --listen 10.0.0.9:7010`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			s.ID = cmp.Or(s.ID, hostname())
			if s.Logger, err = a.logger(level); err != nil {
				return err
			}
			cfg, err := r.resolve()
			if err != nil {
				return badInput(err)
			}
			s.Coordinators, s.Files, s.Token = cfg.Addresses, cfg.TLS, cfg.Token
			if s.Cores < 0 {
				return badInput(fmt.Errorf("--cores %d: give a positive number, or 0 for all", s.Cores))
			}
			return s.Run(c.Context())
		},
	}
	r.flags(c)
	f := c.Flags()
	f.StringVar(&s.ID, "id", "", "`name` of this worker (default: the host's)")
	f.StringVar(&s.Dir, "dir", "ulisse-worker", "cache data sets in this `folder`")
	f.StringVar(&s.Listen, "listen", "127.0.0.1:7010", "`address` for the rows that other workers ask for")
	f.StringVar(&s.Advertise, "advertise", "", "`address` at which others reach --listen, if it is another")
	f.StringVar(&s.Metrics, "metrics", "127.0.0.1:7013", metricsUsage)
	f.BoolVar(&s.Pprof, "pprof", false, pprofUsage)
	f.StringVar(&s.OTLP, "otlp", "", otlpUsage)
	serverFlags(f, &s.Security)
	f.IntVar(&s.Cores, "cores", 0, "compute on this many cores; 0 for all (a container's limit is respected)")
	f.Int64Var(&s.CacheBytes, "cache-bytes", 0, "`bytes` of data sets to keep; 0 for no limit")
	f.Int64Var(&s.DiskReserve, "disk-reserve", 1<<30, "`bytes` of the disk that the cache leaves free")
	f.IntVar(&s.MinRows, "min-rows", 0, "rows from which a product is split over a group; 0 for the default")
	f.StringSliceVar(&s.DataRoots, "data-roots", nil, "`folders` from which jobs may read data by reference")
	f.StringSliceVar(&s.DataHosts, "data-hosts", nil, "`hosts` from which jobs may read data by reference; * for any")
	f.DurationVar(&s.DrainTime, "drain-time", 25*time.Second, "time to reach the next checkpoints when told to stop")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return c
}

func (a *App) devCommand() *cobra.Command {
	cfg := dev.Config{Restart: true}
	var asks string
	var roots []string
	var grace time.Duration
	var splitRows, minRows int
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole cluster on this machine, to try things out",
		Long: `Run a whole cluster as child processes until stopped. The folder gets env, whose
exports point the client at the cluster and hold the administrator's token,
processes.json, and a log of each process. A process that dies is started again.`,
		Example: `  ulisse dev --workers 4 --coordinators 3 --dir cluster
  . cluster/env && ulisse submit --demo --wait`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if cfg.Coordinators < 1 || cfg.Workers < 0 || cfg.Cores < 0 {
				return badInput(fmt.Errorf("--coordinators %d --workers %d --cores %d: give positive numbers", cfg.Coordinators, cfg.Workers, cfg.Cores))
			}
			if cfg.Tokens = asks == server.AuthTokens; !cfg.Tokens && asks != server.AuthNone {
				return badInput(fmt.Errorf("--auth %q: give none or tokens", asks))
			}
			var err error
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			cfg.Logger = slog.New(slog.NewTextHandler(a.Stderr, nil))
			cfg.CoordinatorArgs = []string{"--grace", grace.String(), "--split-rows", fmt.Sprint(splitRows)}
			for i, dir := range roots {
				if roots[i], err = filepath.Abs(dir); err != nil {
					return err
				}
			}
			cfg.WorkerArgs = []string{"--data-roots", strings.Join(roots, ","), "--min-rows", fmt.Sprint(minRows)}
			return dev.Run(c.Context(), cfg, func(procs []dev.Process) { a.tellDev(cfg, procs) })
		},
	}
	f := c.Flags()
	f.IntVar(&cfg.Coordinators, "coordinators", 1, "number of coordinators")
	f.IntVar(&cfg.Workers, "workers", 2, "number of workers")
	f.IntVar(&cfg.Cores, "cores", 0, "cores of each worker; 0 for all")
	f.StringVar(&cfg.Dir, "dir", "ulisse-dev", "keep everything in this `folder`")
	f.BoolVar(&cfg.TLS, "tls", false, "speak TLS, with certificates made for the purpose in tls/ of the folder; else plaintext on loopback")
	f.StringVar(&asks, "auth", server.AuthTokens, "who may call: tokens, or none: then whoever reaches the ports may everything")
	f.StringSliceVar(&roots, "data-roots", []string{"."}, "`folders` from which jobs may read data by reference")
	f.BoolVar(&cfg.Restart, "restart", true, "start processes again that die")
	f.DurationVar(&grace, "grace", 10*time.Second, "as of 'ulisse coordinator'")
	f.IntVar(&splitRows, "split-rows", shard.DefaultSplitRows, "as of 'ulisse coordinator'")
	f.IntVar(&minRows, "min-rows", 0, "as of 'ulisse worker'")
	return c
}

func (a *App) tellDev(cfg dev.Config, procs []dev.Process) {
	for _, p := range procs {
		fmt.Fprintf(a.Stderr, "%-14s  pid %-7d  grpc %-21s  metrics %-21s  %s\n", p.Name, p.PID, p.Addresses.GRPC, p.Addresses.Metrics, p.Addresses.HTTP)
	}
	if cfg.Tokens {
		fmt.Fprintf(a.Stderr, "\na browser is asked for the token in %s\n", filepath.Join(cfg.Dir, "admin-token"))
	}
	fmt.Fprintf(a.Stderr, "\npoint the client at it with:  . %s\nstop it with Ctrl-C; it goes on where it stopped with the same --dir\n", filepath.Join(cfg.Dir, "env"))
}

// as runs a command under another program's name.
func (a *App) as(ctx context.Context, command string, args []string) int {
	return a.Execute(ctx, append([]string{command}, args...))
}

// ExecuteCoordinator is the main program of cmd/coordinator.
func (a *App) ExecuteCoordinator(ctx context.Context, args []string) int {
	return a.as(ctx, "coordinator", args)
}

// ExecuteWorker is the main program of cmd/worker.
func (a *App) ExecuteWorker(ctx context.Context, args []string) int {
	return a.as(ctx, "worker", args)
}
