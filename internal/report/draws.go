package report

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// ReadDraws reads the draws of ψ that WriteAll has written into a folder, chain
// by chain: the columns of the log parameters of draws/chain-K.csv.
func ReadDraws(dir string, m kernel.Model) ([][][]float64, error) {
	var chains [][][]float64
	for c := 1; ; c++ {
		path := filepath.Join(dir, "draws", fmt.Sprintf("chain-%d.csv", c))
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) && c > 1 {
			return chains, nil
		}
		if err != nil {
			return nil, fmt.Errorf("there are no draws in %s: %w", dir, err)
		}
		draws, err := readDraws(f, m)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		chains = append(chains, draws)
	}
}

func readDraws(r io.Reader, m kernel.Model) ([][]float64, error) {
	cr := csv.NewReader(r)
	cr.Comment = '#'
	cr.ReuseRecord = true
	head, err := cr.Read()
	if err != nil {
		return nil, fmt.Errorf("not a table of draws: %w", err)
	}
	var at []int
	for _, name := range m.Names() {
		column := stanName("log_" + name)
		i := slices.Index(head, column)
		if i < 0 {
			return nil, fmt.Errorf("there is no column %s: are these the draws of this model?", column)
		}
		at = append(at, i)
	}
	var draws [][]float64
	for {
		rec, err := cr.Read()
		if err == io.EOF {
			return draws, nil
		}
		if err != nil {
			return nil, err
		}
		psi := make([]float64, len(at))
		for k, i := range at {
			x, err := strconv.ParseFloat(rec[i], 64)
			if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
				return nil, fmt.Errorf("draw %d: %q is not a log parameter", len(draws)+1, rec[i])
			}
			psi[k] = x
		}
		draws = append(draws, psi)
	}
}
