// Command deep learns Gaussian processes by random features, and deep ones, of real tables.
//
//	go run ./bench/deep -data DIR [-sets satellite,eeg,protein,kin40k] [-layers 1,2] [-covariance rbf] [-frequencies variational-fixed] \
//	    [-features 100] [-hidden 3] [-steps 5000] [-minibatch 200] [-step 0.01] [-seconds 180] [-splits 1]
//
// A tenth of the rows, drawn by the seed of the split, is predicted: it prints the error rate, or of numbers the root mean squared error in units of the target's standard deviation, and
// the mean negative log likelihood of the target as it is, of the mixture of 100 draws. Learning ends after -steps steps, or within -seconds: then the steps of the first
// thirtieth of the time say how many there are.
//
// With -policies it learns on a parameter server instead, by workers on a simulated clock:
//
//	go run ./bench/deep -data DIR -sets satellite -layers 2 -steps 2000 -policies asynchronous,staleness-aware,synchronous,backup -workers 1,2,5,10 [-real]
//
// A gradient takes a worker one second, times a log-normal number of median 1 and standard deviation -spread of its log, and one in twenty takes four times as long. synchronous
// waits for all workers, backup for all but a fifth of them, rounded up. Every run has -steps steps. It prints time by that clock, mean staleness, gradients dropped, and the scores of the rows
// held out, at a quarter of the steps and at the end. -real runs the workers side by side on this machine's cores.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/deep"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// sets are the tables by name.
var sets = map[string]struct {
	file, target string
	classes      bool
}{
	"satellite": {"satellite.csv", "classes", true},
	"eeg":       {"eeg.csv", "eyeDetection", true},
	"protein":   {"protein.csv.gz", "RMSD", false},
	"kin40k":    {"kin40k.csv.gz", "y", false},
}

type config struct {
	data, sets, layers, policies, workers string
	shape                                 deep.Config
	learn                                 deep.Options
	seconds                               float64
	splits                                int
	spread                                float64
	real                                  bool
	budget                                *parallel.Budget
}

func main() {
	c := config{budget: parallel.NewBudget(runtime.GOMAXPROCS(0))}
	flag.StringVar(&c.data, "data", "", "folder of the tables")
	flag.StringVar(&c.sets, "sets", "satellite,eeg,protein,kin40k", "tables")
	flag.StringVar(&c.layers, "layers", "1,2", "layers")
	covariance := flag.String("covariance", "rbf", "of a layer: rbf or arc-cosine")
	frequencies := flag.String("frequencies", "variational-fixed", "prior-fixed, variational-fixed or resampled")
	flag.IntVar(&c.shape.Features, "features", 100, "frequencies of a layer")
	flag.IntVar(&c.shape.Hidden, "hidden", 3, "functions of a hidden layer")
	flag.IntVar(&c.learn.Steps, "steps", 5000, "steps")
	flag.IntVar(&c.learn.Minibatch, "minibatch", 200, "rows of a step")
	flag.Float64Var(&c.learn.Step, "step", 0.01, "size of Adam's steps")
	flag.Float64Var(&c.seconds, "seconds", math.Inf(1), "that learning may take, about")
	flag.IntVar(&c.splits, "splits", 1, "splits, by the seeds 1, 2, …")
	flag.StringVar(&c.policies, "policies", "", "of a parameter server: asynchronous, staleness-aware, synchronous, backup")
	flag.StringVar(&c.workers, "workers", "1,2,5,10", "numbers of workers")
	flag.Float64Var(&c.spread, "spread", 0.2, "of the time of a gradient")
	flag.BoolVar(&c.real, "real", false, "workers on this machine's cores, in place of a simulated clock")
	flag.Parse()
	c.shape.Covariance, c.shape.Frequencies, c.shape.ARD = deep.Covariance(*covariance), deep.Frequencies(*frequencies), true
	if err := c.main(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// scores are what a split says.
type scores struct{ error, nll float64 }

func (c *config) main(ctx context.Context) error {
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	if c.policies != "" {
		fmt.Fprintln(tw, "table\tlayers\tpolicy\tworkers\ttime\tstaleness\tdropped\terror at ¼\terror\tNLL\t")
	} else {
		fmt.Fprintln(tw, "table\trows\tlayers\tsteps\tseconds\terror\tNLL\t")
	}
	for _, name := range strings.Split(c.sets, ",") {
		set, ok := sets[name]
		if !ok {
			return fmt.Errorf("no table is called %s", name)
		}
		x, y, err := read(filepath.Join(c.data, set.file), set.target)
		if err != nil {
			return err
		}
		for _, text := range strings.Split(c.layers, ",") {
			if c.shape.Layers, err = strconv.Atoi(text); err != nil {
				return err
			}
			of := c.table
			if c.policies != "" {
				of = c.served
			}
			err = of(ctx, tw, name, func(seed int) (*half, *half, error) { return split(x, y, set.classes, uint64(seed)) })
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			tw.Flush()
		}
	}
	return nil
}

// network returns a network of a split, and where its learning begins.
func (c *config) network(train *half, seed int) (*deep.Network, []float64) {
	shape := c.shape
	shape.Inputs, shape.Seed = train.in.Dim(), uint64(seed)
	n := deep.New(shape, train.output())
	x := n.Start()
	for k := n.Own(); k < n.Size(); k++ {
		x[k] = math.Log(0.1) // variance of the noise
	}
	return n, x
}

// table learns and scores a table, and prints means over the splits with their standard errors.
func (c *config) table(ctx context.Context, tw *tabwriter.Writer, name string, of func(seed int) (*half, *half, error)) error {
	var errs, nlls, seconds []float64
	rows, steps := 0, 0
	for seed := 1; seed <= c.splits; seed++ {
		train, test, err := of(seed)
		if err != nil {
			return err
		}
		n, x := c.network(train, seed)
		o, began := c.learn, time.Now()
		if o.Steps, err = c.affordable(ctx, n, x, train); err != nil {
			return err
		}
		if _, err := n.Learn(ctx, x, train.in.Len(), o, deep.Alone{In: train.in, Budget: c.budget}); err != nil {
			return err
		}
		seconds = append(seconds, time.Since(began).Seconds())
		s, err := c.score(ctx, n, x, test)
		if err != nil {
			return err
		}
		errs, nlls, rows, steps = append(errs, s.error), append(nlls, s.nll), train.in.Len(), o.Steps
	}
	fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t\n", name, rows, c.shape.Layers, steps, told(seconds), told(errs), told(nlls))
	return nil
}

// affordable returns how many steps learning may take.
func (c *config) affordable(ctx context.Context, n *deep.Network, x []float64, train *half) (int, error) {
	if math.IsInf(c.seconds, 1) {
		return c.learn.Steps, nil
	}
	began, steps := time.Now(), 0
	for time.Since(began).Seconds() < c.seconds/30 {
		steps++
		if _, _, err := n.Bound(ctx, x, train.in.Len(), deep.Minibatch(train.in.Len(), c.learn.Minibatch, 0, steps), steps, deep.Alone{In: train.in, Budget: c.budget}); err != nil {
			return 0, err
		}
	}
	return min(c.learn.Steps, 29*steps), nil
}

func told(x []float64) string {
	mean, sd := stat.MeanStdDev(x, nil)
	if len(x) == 1 {
		return fmt.Sprintf("%.4g", mean)
	}
	return fmt.Sprintf("%.4g ± %.2g", mean, sd/math.Sqrt(float64(len(x))))
}

// draws of the posterior that rows are predicted by.
const draws = 100

// score predicts the rows held out.
func (c *config) score(ctx context.Context, n *deep.Network, x []float64, test *half) (s scores, err error) {
	rows, q := test.in.Len(), max(1, test.classes)
	density, mean := make([]float64, rows), make([]float64, rows*q)
	for t := range draws {
		m, v, err := n.Draw(x, t).Latent(ctx, test.in, c.budget)
		if err != nil {
			return s, err
		}
		for i := range rows {
			lo, hi := i*q, (i+1)*q
			if test.classes > 0 {
				p := softmax(m[lo:hi], v[lo:hi], uint64(t))
				density[i] += p[test.class[i]] / draws
				for k := range p {
					mean[lo+k] += p[k] / draws
				}
				continue
			}
			variance := v[i] + math.Exp(x[n.Own()])
			e := test.y[i] - m[i]
			density[i] += math.Exp(-0.5*e*e/variance) / math.Sqrt(2*math.Pi*variance) / test.scale / draws
			mean[i] += m[i] / draws
		}
	}
	for i := range rows {
		s.nll -= math.Log(max(density[i], math.SmallestNonzeroFloat64)) / float64(rows)
		if test.classes == 0 {
			s.error += (test.y[i] - mean[i]) * (test.y[i] - mean[i]) / float64(rows)
		} else if best(mean[i*q:(i+1)*q]) != test.class[i] {
			s.error += 1 / float64(rows)
		}
	}
	if test.classes == 0 {
		s.error = math.Sqrt(s.error)
	}
	return s, nil
}

func best(p []float64) (at int) {
	for k := range p {
		if cmp.Less(p[at], p[k]) {
			at = k
		}
	}
	return at
}
