// Package export writes draws in the formats that other programs read.
//
//	cmdstan  a folder with a CSV file for each chain, as CmdStan writes them
//	csv      one table
//	parquet  one table, with its provenance as key-value metadata
//	npz      NumPy arrays, chain × draw
//	zarr     ArviZ's InferenceData, a folder or a .zip, Zarr version 2
//	netcdf   ArviZ's InferenceData, one netCDF-4 file
//
// The first three hold every draw of every chain. Arrays have a shape: where a
// job goes on, and its chains are of different lengths, the last three hold as
// many draws of each as the shortest has.
//
// Values are the float64 of the run, to the last bit. InferenceData's groups
// posterior_predictive and log_likelihood are there if they are handed in, as Predictive and
// LogLikelihood compute them, and so is the log density of each draw (LogDensities): lp__ in tables,
// lp in sample_stats.
package export

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/failpoint"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// Source is what is exported.
type Source struct {
	Record *report.Record
	Stats  *report.Stats    // nil for none
	Data   *dataset.Dataset // nil where the table is not at hand
	// Predictive is the group posterior_predictive, and LogLikelihood log_likelihood; nil for none.
	Predictive, LogLikelihood *Group
	// LogDensity is that of the posterior at each draw, [c][t]; nil if it is not known.
	LogDensity [][]float64
	Created    time.Time
}

// stats returns the statistics with the log density, nil if neither is known.
func (s *Source) stats() *report.Stats {
	if s.LogDensity == nil {
		return s.Stats
	}
	return s.Stats.With("lp", s.LogDensity)
}

// format writes a source at a path.
type format struct {
	name   string
	ends   []string // of a path that asks for it
	groups bool     // it holds observed_data and constant_data
	write  func(path string, src *Source) error
	stream func(w io.Writer, src *Source) error // nil for a format that is a folder
}

var formats = []format{
	file("csv", []string{".csv"}, false, func(w io.Writer, s *Source) error { return WriteCSV(w, s, 0) }),
	{"cmdstan", nil, false, writeCmdStan, nil},
	file("parquet", []string{".parquet"}, false, writeParquet),
	file("npz", []string{".npz"}, true, writeNPZ),
	{"zarr", []string{".zarr", ".zarr.zip"}, true, writeZarr, nil},
	file("netcdf", []string{".nc", ".netcdf"}, true, writeNetCDF),
}

// Formats returns the names of the formats.
func Formats() []string {
	var names []string
	for _, f := range formats {
		names = append(names, f.name)
	}
	return names
}

// ByName returns the format that a path's ending asks for, csv if none does.
func ByName(path string) string {
	for _, f := range formats {
		if slices.ContainsFunc(f.ends, func(end string) bool { return strings.HasSuffix(strings.ToLower(path), end) }) {
			return f.name
		}
	}
	return "csv"
}

// HoldsData reports whether a format holds the data beside the draws.
func HoldsData(name string) bool {
	f, err := find(name)
	return err == nil && f.groups
}

// Check returns an error if there is no such format, or if the path is taken by
// something that is not of it.
func Check(name, path string) error {
	f, err := find(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	folder := f.name == "cmdstan" || f.name == "zarr" && !zipped(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case folder != info.IsDir():
		return fmt.Errorf("%s is there and is not %s: choose another name", path, map[bool]string{true: "a folder", false: "a file"}[folder])
	}
	if folder {
		if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
			return fmt.Errorf("the folder %s is not empty: choose another", path)
		}
	}
	return nil
}

// Write writes a source in a format: a file that is there is replaced, a folder
// must be new or empty.
func Write(name, path string, src *Source) error {
	if err := Check(name, path); err != nil {
		return err
	}
	f, err := find(name)
	if err != nil {
		return err
	}
	return f.write(path, src)
}

func find(name string) (*format, error) {
	i := slices.IndexFunc(formats, func(f format) bool { return f.name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no format %q: use one of %s", name, strings.Join(Formats(), ", "))
	}
	return &formats[i], nil
}

// file makes a format that is one file.
func file(name string, ends []string, groups bool, write func(io.Writer, *Source) error) format {
	return format{name, ends, groups, func(path string, src *Source) error {
		return atomicfile.Write(path, 0o644, func(w io.Writer) error { return write(w, src) })
	}, write}
}

// Stream returns what writes a source in a format that is one file, to somewhere
// else than a file, and that file's ending.
func Stream(name string) (write func(io.Writer, *Source) error, end string, err error) {
	f, err := find(name)
	if err != nil {
		return nil, "", err
	}
	if f.stream == nil {
		return nil, "", fmt.Errorf("the format %s is a folder, which cannot be sent: use another", name)
	}
	return f.stream, f.ends[0], nil
}

// folder writes a folder that is there whole or not at all.
func folder(path string, write func(dir string) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := write(dir); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	failpoint.At("export rename")
	return os.Rename(dir, path)
}

// WriteCSV writes all chains as one table, or if chain, from 1, is not 0 that one as CmdStan writes it.
func WriteCSV(w io.Writer, src *Source, chain int) error {
	if chain == 0 {
		return report.WriteTable(w, src.Record, src.LogDensity)
	}
	return report.WriteCSV(w, src.Record, src.stats(), chain-1)
}

// writeCmdStan writes NAME-1.csv, NAME-2.csv, …
func writeCmdStan(path string, src *Source) error {
	return folder(path, func(dir string) error {
		for c := range src.Record.Run.Chains {
			name := filepath.Join(dir, fmt.Sprintf("%s-%d.csv", src.Record.Spec.Name, c+1))
			if err := atomicfile.Write(name, 0o644, func(w io.Writer) error { return report.WriteCSV(w, src.Record, src.stats(), c) }); err != nil {
				return err
			}
		}
		return nil
	})
}
