package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/client"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// workerView is a worker as --json prints it.
type workerView struct {
	ID             string          `json:"id"`
	Address        string          `json:"address"`
	State          string          `json:"state"` // ready, draining, aside or lost
	Cores          int32           `json:"cores"`
	InstructionSet string          `json:"instruction_set"`
	PairsPerSecond float64         `json:"pairs_per_second"`
	MemoryBytes    int64           `json:"memory_bytes"`
	Joined         *time.Time      `json:"joined"`
	LastSeen       *time.Time      `json:"last_seen"`
	Driving        []placementView `json:"driving"`
	Serving        []placementView `json:"serving"`
	Load           loadView        `json:"load"`
	Version        string          `json:"version"`
	Troubles       []string        `json:"troubles,omitempty"`      // jobs that it could not do, and why
	Disagreements  []string        `json:"disagreements,omitempty"` // who computes other numbers than it does, and where
}

type placementView struct {
	Job     string `json:"job"`
	Chain   int32  `json:"chain"` // 0: the preparation
	Attempt int64  `json:"attempt"`
}

// loadView is what a worker has done since it started.
type loadView struct {
	Pairs         float64 `json:"pairs"`
	BusySeconds   float64 `json:"busy_seconds"`
	Tiles         int64   `json:"tiles"` // for other workers
	TileRetries   int64   `json:"tile_retries"`
	Hedges        int64   `json:"hedges"`
	BytesSent     int64   `json:"bytes_sent"`
	BytesReceived int64   `json:"bytes_received"`
	CacheHits     int64   `json:"cache_hits"`
	CacheMisses   int64   `json:"cache_misses"`
}

func newWorkerView(w *pb.Worker) workerView {
	c, l := w.GetCapacity(), w.GetLoad()
	return workerView{ID: w.Id, Address: w.Address, State: workerState(w), Cores: c.GetCores(), InstructionSet: c.GetInstructionSet(),
		PairsPerSecond: c.GetPairsPerSecond(), MemoryBytes: c.GetMemoryBytes(), Joined: client.Moment(w.Joined), LastSeen: client.Moment(w.LastSeen),
		Driving: placements(w.Driving), Serving: placements(w.Serving), Version: w.Version, Troubles: w.Troubles, Disagreements: w.Disagreements,
		Load: loadView{l.GetPairs(), l.GetBusySeconds(), l.GetTiles(), l.GetTileRetries(), l.GetHedges(), l.GetBytesSent(), l.GetBytesReceived(),
			l.GetCacheHits(), l.GetCacheMisses()}}
}

func placements(ps []*pb.Placement) []placementView {
	views := []placementView{}
	for _, p := range ps {
		views = append(views, placementView{p.Job, p.Chain, p.Attempt})
	}
	return views
}

func workerState(w *pb.Worker) string {
	switch {
	case !w.Connected:
		return "lost"
	case w.Draining:
		return "draining"
	case w.Aside:
		return "aside"
	}
	return "ready"
}

func (a *App) workersCommand() *cobra.Command {
	var r remote
	var asJSON bool
	c := &cobra.Command{
		Use:   "workers",
		Short: "List workers",
		Args:  cobra.NoArgs,
		RunE: a.on(&r, func(ctx context.Context, s *session, _ []string) error {
			workers, err := s.Workers(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				views := []workerView{}
				for _, w := range workers {
					views = append(views, newWorkerView(w))
				}
				return a.printJSON(views)
			}
			var rows [][]string
			for _, w := range workers {
				c := w.GetCapacity()
				var drives []string
				for _, p := range w.Driving {
					drives = append(drives, fmt.Sprintf("%s/%d", p.Job, p.Chain))
				}
				rows = append(rows, []string{w.Id, workerState(w), strconv.Itoa(int(c.GetCores())), c.GetInstructionSet(),
					number("%.3g", c.GetPairsPerSecond()), bytesText(c.GetMemoryBytes()), strings.Join(drives, ","), strconv.Itoa(len(w.Serving)), age(w.LastSeen, a.Now())})
			}
			if err := a.table("ID STATE CORES ISA PAIRS/S MEMORY DRIVES SERVES SEEN", rows); err != nil {
				return err
			}
			for _, w := range workers {
				for _, why := range w.Troubles {
					fmt.Fprintf(a.Stdout, "%s is not asked for a while to do job %s\n", w.Id, why)
				}
				for _, why := range w.Disagreements {
					fmt.Fprintf(a.Stdout, "%s does not compute the same numbers as %s\n", w.Id, why)
				}
			}
			return nil
		}),
	}
	r.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *App) drainCommand() *cobra.Command {
	var r remote
	var asJSON bool
	c := &cobra.Command{
		Use:   "drain WORKER",
		Short: "Take all work from a worker at the next checkpoints, for it to leave",
		Args:  cobra.ExactArgs(1),
		RunE: a.on(&r, func(ctx context.Context, s *session, args []string) error {
			w, err := s.FindWorker(ctx, args[0])
			if err != nil {
				return err
			}
			if w, err = s.Drain(ctx, w.Id); err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(newWorkerView(w))
			}
			fmt.Fprintf(a.Stdout, "%s drains\n", w.Id)
			return nil
		}),
	}
	r.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print the worker as JSON")
	c.ValidArgsFunction = a.completion(&r, func(ctx context.Context, s *session) ([]cobra.Completion, error) {
		workers, err := s.Workers(ctx)
		var list []cobra.Completion
		for _, w := range workers {
			list = append(list, cobra.CompletionWithDesc(w.Id, workerState(w)))
		}
		return list, err
	})
	return c
}
