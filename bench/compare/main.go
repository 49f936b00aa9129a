// Command compare holds approximations against the exact Gaussian process, and likelihoods against each other, as their user has them: the same
// splits, commands and scores.
//
//	go build -o /tmp/ulisse ./cmd/ulisse
//	go run ./bench/compare -ulisse /tmp/ulisse -data concrete.csv -target strength [-rows 3000] [-splits 5] \
//	    [-methods run,run:student-t,fit,sgpr:100,sgpr:100:move,svgp:100,svgp:100:adam,fitc:100,dtc:100,sgpmc:100,subset:100,random-features:100,deep:100] [-kernel rbf] [-chains 4] [-draws 250] [-sampler fisher] [-seconds 3600]
//	go run ./bench/compare -ulisse /tmp/ulisse -friedman clusters [-splits 10] [-methods run,run:student-t,run:heteroscedastic,run:twinned]
//
// run is the exact posterior by ulisse run and -sampler, with a likelihood by the method that that has, fit the exact model's point estimate; sgpmc is the full posterior of an
// approximation with so many inducing inputs, and the others are point estimates of approximations with so many inducing inputs,
// moved or not, or rows, or features of a layer; adam is 3,000 batches of 500 rows. run and sgpmc end after -seconds at the latest, and -draws draws of each chain. Split i holds out a fifth of the rows by the seed i. Of each
// method it prints means over the splits with their standard errors, if there are several, of: the root mean squared error in the units of the
// target, the mean log density of the rows held out, the percentages of them within the central 50, 90 and 95 %, and
// seconds, of estimating and of predicting; and of all but the first method the means, with standard errors, of the differences from it on the same splits.
//
// -friedman scattered or clusters are, in place of a table, the function of Friedman with outliers as Naish-Guzman (2007, section 3.3) has them: of ten inputs, 90 rows with noise of sd 1 to learn from with ten outliers,
// whose targets are N(15,9) anywhere or N(0,1) in two small clusters, and 1,000 rows with that noise to predict. Set i is made by the seed i.
package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

type config struct {
	ulisse, data, target, kernel, exclude, sampler, friedman string
	rows, splits                                             int
	chains, draws, seconds                                   int
}

func main() {
	var c config
	flag.StringVar(&c.ulisse, "ulisse", "ulisse", "the program")
	flag.StringVar(&c.data, "data", "", "table")
	flag.StringVar(&c.target, "target", "", "its column to predict")
	flag.StringVar(&c.exclude, "exclude", "", "columns to leave out, between commas")
	flag.StringVar(&c.kernel, "kernel", "rbf", "family, with a length-scale for each input")
	flag.StringVar(&c.friedman, "friedman", "", "scattered or clusters: Friedman's function with outliers, in place of a table")
	flag.IntVar(&c.rows, "rows", 0, "the first so many rows; 0 for all")
	flag.IntVar(&c.splits, "splits", 5, "splits, by the seeds 1, 2, …")
	flag.IntVar(&c.chains, "chains", 4, "chains of run")
	flag.IntVar(&c.draws, "draws", 250, "draws a chain of run")
	flag.StringVar(&c.sampler, "sampler", "auto", "method of run")
	flag.IntVar(&c.seconds, "seconds", 3600, "that run and sgpmc may take")
	methods := flag.String("methods", "fit,sgpr:100,sgpr:100:move,fitc:100,dtc:100,subset:100", "what to compare")
	flag.Parse()
	if err := c.compare(context.Background(), strings.Split(*methods, ",")); err != nil {
		log.Fatal(err)
	}
}

// scores are what a split says of a method.
type scores struct{ rmse, density, in50, in90, in95, estimate, predict float64 }

func (s *scores) values() []float64 {
	return []float64{s.rmse, s.density, s.in50, s.in90, s.in95, s.estimate, s.predict}
}

func (c *config) compare(ctx context.Context, methods []string) error {
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	var first [][]float64
	fmt.Fprintln(tw, "method\tRMSE\tlog density\tin 50 %\tin 90 %\tin 95 %\tseconds\tto predict\t")
	for _, m := range methods {
		columns := make([][]float64, 7)
		for split := range c.splits {
			s, err := c.split(ctx, m, split+1)
			if err != nil {
				return fmt.Errorf("%s, split %d: %w", m, split+1, err)
			}
			for k, v := range s.values() {
				columns[k] = append(columns[k], v)
			}
		}
		print(tw, m, columns)
		if first == nil {
			first = columns
			continue
		}
		for k, x := range columns {
			columns[k] = floats.SubTo(make([]float64, len(x)), x, first[k])
		}
		print(tw, "less "+methods[0], columns)
	}
	return nil
}

// print prints the means of columns with their standard errors.
func print(tw *tabwriter.Writer, what string, columns [][]float64) {
	fmt.Fprint(tw, what, "\t")
	for _, x := range columns {
		mean, sd := stat.MeanStdDev(x, nil)
		if len(x) == 1 {
			fmt.Fprintf(tw, "%.4g\t", mean)
			continue
		}
		fmt.Fprintf(tw, "%.4g ± %.2g\t", mean, sd/math.Sqrt(float64(len(x))))
	}
	fmt.Fprintln(tw)
	tw.Flush()
}

// split estimates by a method, and predicts what a split holds out.
func (c *config) split(ctx context.Context, method string, seed int) (*scores, error) {
	dir, err := os.MkdirTemp("", "compare")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	command, model, err := parse(method)
	if err != nil {
		return nil, err
	}
	sampler := ""
	if method == "run" {
		sampler = ", method: " + c.sampler
	}
	data, rest, err := c.table(dir, seed)
	if err != nil {
		return nil, err
	}
	spec := fmt.Sprintf("name: compare\ndata: {%s}\nmodel: {kernel: %s, ard: true%s}\nsampler: {chains: %d, draws: %d%s}\nstop: {max_draws: %d, max_time: %ds}\nseed: %d\n",
		data, c.kernel, model, c.chains, c.draws, sampler, c.draws, c.seconds, seed)
	file, out, table := filepath.Join(dir, "spec.yaml"), filepath.Join(dir, "out"), filepath.Join(dir, "predicted.csv")
	if err := os.WriteFile(file, []byte(spec), 0o644); err != nil {
		return nil, err
	}
	var s scores
	if s.estimate, err = c.timed(ctx, append(command, file, "--out", out, "--quiet")...); err != nil {
		return nil, err
	}
	if s.predict, err = c.timed(ctx, append([]string{"predict", out, "--out", table}, rest...)...); err != nil {
		return nil, err
	}
	return &s, s.read(table)
}

// table returns what a specification says of the data of a split, and how to predict the rows that it does not learn from.
func (c *config) table(dir string, seed int) (data string, rest []string, err error) {
	if c.friedman != "" {
		return c.outliers(dir, seed)
	}
	path, err := filepath.Abs(c.data)
	return fmt.Sprintf("path: %q, target: %q, exclude: [%s], rows: %d, holdout: 0.2", path, c.target, c.exclude, c.rows), []string{"--holdout"}, err
}

// parse returns the command of a method with its flags, and what its specification says of the likelihood or the approximation.
func parse(method string) (command []string, model string, err error) {
	parts := strings.Split(method, ":")
	switch {
	case method == "run" || method == "fit":
		return []string{method}, "", nil
	case len(parts) == 2 && parts[0] == "run":
		return []string{"run"}, ", likelihood: " + parts[1], nil
	case len(parts) == 2 && (parts[0] == "random-features" || parts[0] == "deep"):
		return []string{"fit"}, fmt.Sprintf(", approximation: {kind: %s, features: %s}", parts[0], parts[1]), nil
	case len(parts) == 2:
		command := "fit"
		if parts[0] == "sgpmc" {
			command = "run"
		}
		return []string{command}, fmt.Sprintf(", approximation: {kind: %s, inducing: %s}", parts[0], parts[1]), nil
	case len(parts) == 3 && parts[2] == "adam":
		return []string{"fit", "--method", "adam", "--iterations", "3000"}, fmt.Sprintf(", approximation: {kind: %s, inducing: %s}", parts[0], parts[1]), nil
	case len(parts) == 3 && parts[2] == "move":
		return []string{"fit"}, fmt.Sprintf(", approximation: {kind: %s, inducing: %s, optimise: true}", parts[0], parts[1]), nil
	}
	return nil, "", fmt.Errorf("no method is called %q", method)
}

// unconverged is the exit of an estimate that is not what it should be, but there.
const unconverged = 3

// timed runs the program, and returns the seconds that it took.
func (c *config) timed(ctx context.Context, args ...string) (float64, error) {
	cmd := exec.CommandContext(ctx, c.ulisse, args...)
	began := time.Now()
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == unconverged {
		log.Printf("%s has not converged", args[0])
		err = nil
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", args[0], err, said)
	}
	return time.Since(began).Seconds(), nil
}

// read scores a table of predictions.
func (s *scores) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return err
	}
	at := map[string]int{}
	for k, name := range lines[0] {
		at[name] = k
	}
	n := float64(len(lines) - 1)
	for _, line := range lines[1:] {
		var x [4]float64
		for k, name := range []string{"mean", "target", "log_density", "pit"} {
			if x[k], err = strconv.ParseFloat(line[at[name]], 64); err != nil {
				return err
			}
		}
		s.rmse += (x[0] - x[1]) * (x[0] - x[1]) / n
		s.density += x[2] / n
		for _, in := range []struct {
			mass float64
			to   *float64
		}{{0.5, &s.in50}, {0.9, &s.in90}, {0.95, &s.in95}} {
			if math.Abs(x[3]-0.5) <= in.mass/2 {
				*in.to += 100 / n
			}
		}
	}
	s.rmse = math.Sqrt(s.rmse)
	return nil
}
