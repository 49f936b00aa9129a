package main

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/deep"
	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// half is a half of a split: rows to learn from, or to predict.
type half struct {
	in      *kernel.Inputs
	y       []float64 // standardised by the rows learnt from
	class   []int     // of classes
	classes int       // 0 for numbers
	scale   float64   // of y
}

// output returns what the targets are.
func (h *half) output() deep.Output {
	if h.classes > 0 {
		return deep.Softmax{Class: h.class, Classes: h.classes}
	}
	return deep.Gaussian{Y: h.y}
}

// read returns a table's inputs and targets: text of classes, and numbers.
func read(path, target string) (x [][]float64, y []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	var from io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if from, err = gzip.NewReader(f); err != nil {
			return nil, nil, err
		}
	}
	lines, err := csv.NewReader(from).ReadAll()
	if err != nil {
		return nil, nil, err
	}
	at := slices.Index(lines[0], target)
	if at < 0 {
		return nil, nil, fmt.Errorf("%s has no column %s", path, target)
	}
	for _, line := range lines[1:] {
		var row []float64
		for k, text := range line {
			if k == at {
				y = append(y, text)
				continue
			}
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, nil, err
			}
			row = append(row, v)
		}
		x = append(x, row)
	}
	return x, y, nil
}

// split returns the rows to learn from and, of a tenth of them drawn by the seed, those to predict, standardised by the first.
func split(x [][]float64, y []string, classes bool, seed uint64) (train, test *half, err error) {
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(x))
	n := len(x) - len(x)/10
	var labels []string
	if classes {
		labels = slices.Compact(slices.Sorted(slices.Values(y)))
	}
	make := func(rows []int) (*half, error) {
		h := &half{classes: len(labels), scale: 1}
		var flat []float64
		for _, i := range rows {
			flat = append(flat, x[i]...)
			if classes {
				h.class = append(h.class, slices.Index(labels, y[i]))
				continue
			}
			v, err := strconv.ParseFloat(y[i], 64)
			if err != nil {
				return nil, err
			}
			h.y = append(h.y, v)
		}
		h.in = kernel.NewInputs(len(rows), len(x[0]), flat)
		return h, nil
	}
	if train, err = make(order[:n]); err != nil {
		return nil, nil, err
	}
	if test, err = make(order[n:]); err != nil {
		return nil, nil, err
	}
	standardise(train, test)
	return train, test, nil
}

// standardise shifts and scales inputs and targets of both as the first one's are.
func standardise(train, test *half) {
	columns := func(h *half) [][]float64 {
		out := make([][]float64, h.in.Dim())
		for i := range h.in.Len() {
			for k, v := range h.in.Row(i) {
				out[k] = append(out[k], v)
			}
		}
		if h.y != nil {
			out = append(out, h.y)
		}
		return out
	}
	a, b := columns(train), columns(test)
	for k := range a {
		mean, sd := stat.MeanStdDev(a[k], nil)
		if sd == 0 {
			sd = 1
		}
		for _, c := range [][]float64{a[k], b[k]} {
			for i := range c {
				c[i] = (c[i] - mean) / sd
			}
		}
		train.scale, test.scale = sd, sd
	}
	for h, c := range map[*half][][]float64{train: a, test: b} {
		flat := make([]float64, 0, h.in.Len()*h.in.Dim())
		for i := range h.in.Len() {
			for k := range h.in.Dim() {
				flat = append(flat, c[k][i])
			}
		}
		h.in = kernel.NewInputs(h.in.Len(), h.in.Dim(), flat)
	}
}
