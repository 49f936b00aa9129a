package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// WriteFile writes a file so that it is there whole or not at all.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	w := bufio.NewWriter(f)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// WriteAll writes the results of a run into a directory:
// draws/chain-K.csv, summary.json, summary.txt, and the plots trace.svg,
// density.svg, rank.svg, mean.svg, rhat.svg, autocorrelation.svg and pairs.svg.
func WriteAll(dir string, sum *Summary, d *dataset.Info, m kernel.Model, r *chains.Run) error {
	if err := os.MkdirAll(filepath.Join(dir, "draws"), 0o755); err != nil {
		return err
	}
	files := map[string]func(io.Writer) error{
		"summary.json": func(w io.Writer) error {
			enc := json.NewEncoder(w)
			enc.SetIndent("", "  ")
			return enc.Encode(sum)
		},
		"summary.txt": sum.WriteText,
	}
	for c := range r.Chains {
		files[fmt.Sprintf("draws/chain-%d.csv", c+1)] = func(w io.Writer) error { return WriteCSV(w, sum, d, m, r, c) }
	}
	if r.MinDraws() > 1 {
		draws := PlotDraws(r)
		var truth []float64
		if d.Truth != nil {
			truth = m.Psi(*d.Truth)
		}
		files["trace.svg"] = func(w io.Writer) error { return plots.Trace(w, draws) }
		files["density.svg"] = func(w io.Writer) error { return plots.Density(w, draws, truth) }
		files["rank.svg"] = func(w io.Writer) error { return plots.Rank(w, draws) }
		files["mean.svg"] = func(w io.Writer) error { return plots.RunningMean(w, draws) }
		files["autocorrelation.svg"] = func(w io.Writer) error { return plots.Autocorrelation(w, draws) }
		files["pairs.svg"] = func(w io.Writer) error { return plots.Pairs(w, draws) }
		files["rhat.svg"] = func(w io.Writer) error { return plots.RunningRHat(w, draws, r.Plan.RHat) }
	}
	for name, write := range files {
		if err := WriteFile(filepath.Join(dir, name), write); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// WriteCSV writes the draws of chain c (from 0) in the form of CmdStan: comment
// lines with the settings, a header, a row for each draw. Elements of vectors
// are called tau.1, tau.2, … as there. Values are exact.
func WriteCSV(w io.Writer, sum *Summary, d *dataset.Info, m kernel.Model, r *chains.Run, c int) error {
	bw := bufio.NewWriter(w)
	ch := &r.Chains[c]
	fmt.Fprintf(bw, "# stan_version_major = 2\n# stan_version_minor = 33\n# stan_version_patch = 0\n")
	fmt.Fprintf(bw, "# model = %s\n# method = sample (Default)\n#   sample\n", sum.Name)
	fmt.Fprintf(bw, "#     num_samples = %d\n#     num_warmup = %d\n#     save_warmup = 0 (Default)\n#     thin = 1 (Default)\n", len(ch.Draws), ch.Warmup)
	fmt.Fprintf(bw, "#     algorithm = fixed_param\n# id = %d\n# data\n#   file = %s\n# random\n#   seed = %d\n", c+1, d.Target, sum.Seed)
	fmt.Fprintf(bw, "# ulisse_version = %s\n# ulisse_method = %s\n", version.Version, r.Plan.Method)
	if t := sum.Settings; t != nil && t.Step > 0 {
		fmt.Fprintf(bw, "# ulisse_step = %v\n# ulisse_probes = %d\n", t.Step, t.Probes)
	}
	q := quantities(m, d)
	bw.WriteString(stanNames(q) + "\n")
	for _, psi := range ch.Draws {
		writeRow(bw, q, psi)
	}
	seconds := math.Round(1000*ch.Cost.Seconds) / 1000
	fmt.Fprintf(bw, "# \n#  Elapsed Time: 0 seconds (Warm-up)\n#                %v seconds (Sampling)\n#                %v seconds (Total)\n# \n", seconds, seconds)
	return bw.Flush()
}

// WriteTable writes the draws of all chains as one CSV table: the columns of
// WriteCSV after two that tell the chain and the draw, from 1.
func WriteTable(w io.Writer, d *dataset.Info, m kernel.Model, r *chains.Run) error {
	bw := bufio.NewWriter(w)
	q := quantities(m, d)
	bw.WriteString("chain__,draw__," + stanNames(q) + "\n")
	for c, ch := range r.Chains {
		for t, psi := range ch.Draws {
			fmt.Fprintf(bw, "%d,%d,", c+1, t+1)
			writeRow(bw, q, psi)
		}
	}
	return bw.Flush()
}

// writeRow writes the values of a draw, exactly.
func writeRow(w *bufio.Writer, q []quantity, psi []float64) {
	for i, x := range q {
		if i > 0 {
			w.WriteByte(',')
		}
		w.WriteString(strconv.FormatFloat(x.of(psi), 'g', -1, 64))
	}
	w.WriteByte('\n')
}

// stanNames returns the header of a CSV table.
func stanNames(q []quantity) string {
	names := make([]string, len(q))
	for i, x := range q {
		names[i] = stanName(x.name)
	}
	return strings.Join(names, ",")
}

// stanName returns the name of a CSV column: tau[1] becomes tau.1.
func stanName(name string) string {
	return strings.NewReplacer("[", ".", "]", "").Replace(name)
}
