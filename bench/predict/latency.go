package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// latency measures how long a cluster takes to answer Predict, call after call,
// once the worker has K⁻¹y of the draws. The rows are random, of standardised
// size.
type latency struct {
	coordinators, job string
	calls, batch      int
}

func (l *latency) flags() {
	flag.StringVar(&l.coordinators, "coordinators", "127.0.0.1:7000", "host:port,... of the cluster")
	flag.StringVar(&l.job, "job", "", "measure how long predictions from this job take")
	flag.IntVar(&l.calls, "calls", 200, "calls for each line")
	flag.IntVar(&l.batch, "batch", 1, "rows of a call")
}

func (l *latency) measure(ctx context.Context) error {
	c, err := client.Dial(client.Config{Addresses: strings.Split(l.coordinators, ","), Patience: time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	j, _, err := c.Find(ctx, l.job)
	if err != nil {
		return err
	}
	fmt.Printf("| n = %d | draws | rows a call | first call / ms | p50 / ms | p99 / ms |\n|---|---|---|---|---|---|\n", j.Data.N)
	for _, v := range []struct {
		variance predict.Variance
		draws    int
	}{{predict.Exact, 1}, {predict.Exact, 10}, {predict.Exact, 0}, {predict.Surface, 0}} {
		var took []float64 // ms
		draws := 0
		for call := range l.calls + 1 {
			r := predict.Request{}
			for i := range l.batch {
				x := make([]float64, j.Data.D)
				random.Normal(random.Key{Iter: call}.Stream(random.Calibration, i), x)
				for k, s := range j.Data.InputScales {
					x[k] = s.Mean + s.Sd*x[k]
				}
				r.X = append(r.X, x)
			}
			began := time.Now()
			m, err := c.Predict(ctx, predict.Encode(j.Id, r, predict.Options{Variance: v.variance}, v.draws), nil)
			if err != nil {
				return err
			}
			took, draws = append(took, 1000*time.Since(began).Seconds()), int(m.Stats.Draws)
		}
		first, rest := took[0], took[1:]
		slices.Sort(rest)
		at := func(p float64) float64 { return rest[min(len(rest)-1, int(p*float64(len(rest))))] }
		fmt.Printf("| %s | %d | %d | %.0f | %.1f | %.1f |\n", v.variance, draws, l.batch, first, at(0.5), at(0.99))
	}
	return nil
}
