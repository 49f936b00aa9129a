package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ulisse-gp/ulisse/internal/plots"
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

// WriteAll writes the results of a run into a directory: result.json,
// draws/chain-K.csv, summary.json, summary.txt, and the plots trace.svg,
// density.svg, rank.svg, mean.svg, rhat.svg, autocorrelation.svg and pairs.svg.
// sum is the record's summary.
func WriteAll(dir string, rec *Record, sum *Summary) error {
	r := rec.Run
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
		recordFile:    rec.write,
	}
	for c := range r.Chains {
		files[fmt.Sprintf("draws/chain-%d.csv", c+1)] = func(w io.Writer) error { return WriteCSV(w, rec, nil, c) }
	}
	if r.MinDraws() > 1 {
		draws := PlotDraws(r)
		var truth []float64
		if rec.Data.Truth != nil {
			truth = rec.Model.Psi(*rec.Data.Truth)
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
