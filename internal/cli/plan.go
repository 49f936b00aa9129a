package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// estimate is what a run is expected to take.
type estimate struct {
	Name             string  `json:"name"`
	N                int     `json:"n"`
	D                int     `json:"d"`
	Cores            int     `json:"cores"`
	InstructionSet   string  `json:"instruction_set"`
	MemoryBytes      int64   `json:"memory_bytes"`
	DataBytes        int64   `json:"data_bytes"`
	VectorBytes      int64   `json:"vector_bytes"`
	PrecondBytes     int64   `json:"preconditioner_bytes"`
	PrecondRank      int     `json:"preconditioner_rank"`
	DenseBytes       int64   `json:"dense_bytes"`
	CacheBytes       int64   `json:"cache_bytes"` // of all chains
	RightHandSides   int     `json:"right_hand_sides"`
	PairsPerProduct  float64 `json:"pairs_per_product"`
	PairsPerSecond   float64 `json:"pairs_per_second"` // all cores, at that number of right-hand sides
	SecondsProduct   float64 `json:"seconds_per_product"`
	Iterations       int     `json:"iterations_assumed"`
	SecondsGradient  float64 `json:"seconds_per_gradient"`
	Gradients        int     `json:"gradients"`
	SecondsEstimated float64 `json:"seconds_estimated"`
	// Cache is what the calibration of the cache of K measured and decided;
	// null if it is off, or K is stored anyway.
	Cache *cmvp.CachePlan `json:"cache"`
}

// prepareGradients is about what finding the mode takes, besides two for each
// parameter for the curvature.
const prepareGradients = 10

func (a *App) planCommand() *cobra.Command {
	var f source
	var asJSON bool
	c := &cobra.Command{
		Use:   "plan [SPEC]",
		Short: "Tell what a run will take: memory, work, and time from a one-second calibration",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			spec, err := f.spec(args)
			if err != nil {
				return err
			}
			budget := f.budget()
			_, p, err := a.load(c.Context(), spec, budget)
			if err != nil {
				return err
			}
			e, err := newEstimate(c.Context(), spec, p, budget)
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(a.Stdout)
				enc.SetIndent("", "  ")
				return enc.Encode(e)
			}
			return a.printEstimate(e)
		},
	}
	f.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newEstimate(ctx context.Context, s *job.Spec, p *posterior.Problem, budget *parallel.Budget) (*estimate, error) {
	n, d := int64(len(p.Y)), int64(p.Inputs.Dim())
	plan := chains.NewPlan(s, p.Model.Names())
	e := &estimate{Name: s.Name, N: int(n), D: int(d), Cores: budget.Cores(), InstructionSet: instructionSet()}
	e.RightHandSides = 1 + s.Sampler.Probes.Or(driver.AssumedProbes)
	if plan.Method == "exact" { // one after the other
		e.RightHandSides = 1
	}
	chainsAtOnce := int64(min(plan.Chains, budget.Cores()))
	e.DataBytes = 8 * n * (d + 1)
	if plan.Method == "cholesky" {
		e.RightHandSides = 0
		e.DenseBytes = chainsAtOnce * 8 * n * n * 2 // K and its factor
	} else {
		// Each chain: its scaled inputs; x, b, v, r, z, p, q, padded copies and
		// the parts of a product for every right-hand side.
		const vectors = 12
		e.VectorBytes = int64(plan.Chains) * 8 * n * (d + vectors*int64(e.RightHandSides))
		if s.Solver.Preconditioner.Kind != "none" {
			e.PrecondRank = s.Solver.Preconditioner.Rank.Or(precond.MaxRank(int(n)))
			m := int64(e.PrecondRank)
			e.PrecondBytes = 8 * (2*n*m + 4*m*m)                                  // while it is built
			if pc := s.Solver.Preconditioner; pc.Kind == "auto" && !pc.Rank.Set { // with what it is compared with
				e.PrecondBytes += 8 * 2 * n * m
			}
			if plan.Method == "exact" { // two for each chain, and one that is built
				e.PrecondBytes += int64(plan.Chains) * 2 * 8 * (n*m + 3*m*m)
			}
		}
		if plan.Method == "exact" { // Lanczos keeps its basis
			e.VectorBytes += int64(plan.Chains) * 8 * n * driver.AssumedIterations
		}
		sub := int64(min(int(n), s.Sampler.Subset.Or(512)))
		e.DenseBytes = 4 * 8 * sub * sub
	}
	var err error
	if e.Cache, err = driver.PlanCache(ctx, s, p, budget); err != nil {
		return nil, err
	}
	if e.Cache != nil && e.Cache.Use {
		e.CacheBytes = e.Cache.Bytes * int64(driver.CacheOperators(s))
	}
	e.MemoryBytes = e.DataBytes + e.VectorBytes + e.PrecondBytes + e.DenseBytes + e.CacheBytes
	e.PairsPerProduct = float64(n) * float64(n)
	if e.RightHandSides > 0 {
		if err := e.calibrate(ctx, p, budget); err != nil {
			return nil, err
		}
		e.Iterations = driver.AssumedIterations
		saving := 0.0
		if e.Cache != nil && e.Cache.Use {
			saving = e.Cache.Saving
		}
		e.SecondsGradient = e.SecondsProduct * (float64(e.Iterations)*(1-saving) + 2)
		if plan.Method == "exact" { // x by Lanczos, then a solve
			e.SecondsGradient *= 2
		}
	} else {
		d := posterior.NewDense(p, budget)
		psi := make([]float64, p.Model.NumParams())
		began := time.Now()
		d.LogDensity(psi)
		e.SecondsGradient = time.Since(began).Seconds()
	}
	warm := 0
	for _, w := range plan.Windows {
		warm += w
	}
	e.Gradients = plan.Chains * (warm + plan.Draws)
	if plan.Matched() || plan.Method == "exact" {
		e.Gradients += prepareGradients + 2*p.Model.NumParams()
	}
	e.SecondsEstimated = float64(e.Gradients) * e.SecondsGradient
	return e, nil
}

// calibrate measures products for about a second, on all cores, on as many of
// the rows as that takes.
func (e *estimate) calibrate(ctx context.Context, p *posterior.Problem, budget *parallel.Budget) error {
	op := cmvp.New(p.Inputs, p.Covariance, budget)
	op.Set(p.At(make([]float64, p.NumParams())))
	v, dst := solve.Columns(e.N, e.RightHandSides), solve.Columns(e.N, e.RightHandSides)
	for _, c := range v {
		for i := range c {
			c[i] = 1
		}
	}
	// A few rows first, to know how many a second takes.
	rows := min(e.N, cmvp.TileRows)
	var seconds, pairs float64
	for seconds < 0.5 {
		began := time.Now()
		part := make([][]float64, len(dst))
		for c := range part {
			part[c] = dst[c][:rows]
		}
		if err := op.MulRows(ctx, part, v, 0, rows, cmvp.Double); err != nil {
			return err
		}
		seconds = time.Since(began).Seconds()
		pairs = float64(rows) * float64(e.N)
		if rows == e.N {
			// The whole product: repeat it for the rest of the second.
			times := 1
			for ; seconds < 1; times++ {
				if err := op.Mul(ctx, dst, v); err != nil {
					return err
				}
				seconds = time.Since(began).Seconds()
			}
			pairs *= float64(times)
			break
		}
		grow := min(64, max(2, 0.8/seconds))
		rows = min(e.N, int(float64(rows)*grow)/cmvp.TileRows*cmvp.TileRows)
	}
	e.PairsPerSecond = pairs / seconds
	e.SecondsProduct = e.PairsPerProduct / e.PairsPerSecond
	return nil
}

func (a *App) printEstimate(e *estimate) error {
	tw := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("data", "%d rows, %d inputs", e.N, e.D)
	row("machine", "%d cores, %s", e.Cores, e.InstructionSet)
	row("memory", "%s: data %s, vectors %s, preconditioner %s (rank %d at most), dense matrices %s, kept elements of K %s", bytesText(e.MemoryBytes),
		bytesText(e.DataBytes), bytesText(e.VectorBytes), bytesText(e.PrecondBytes), e.PrecondRank, bytesText(e.DenseBytes), bytesText(e.CacheBytes))
	if e.RightHandSides > 0 {
		row("product", "%.3g pairs, %d right-hand sides: %s (%.3g pairs/s)", e.PairsPerProduct, e.RightHandSides, secondsText(e.SecondsProduct), e.PairsPerSecond)
		if e.Cache != nil {
			row("cache", "%s", e.Cache)
		}
		row("gradient", "%s if solves take %d iterations", secondsText(e.SecondsGradient), e.Iterations)
	} else {
		row("density", "%s each", secondsText(e.SecondsGradient))
	}
	row("run", "%d of them, %s in all", e.Gradients, secondsText(e.SecondsEstimated))
	return tw.Flush()
}

func bytesText(b int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	x, u := float64(b), 0
	for x >= 1024 && u < len(units)-1 {
		x, u = x/1024, u+1
	}
	return fmt.Sprintf("%.3g %s", x, units[u])
}

func secondsText(s float64) string {
	if s < 10 {
		return fmt.Sprintf("%.3g s", s)
	}
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}
