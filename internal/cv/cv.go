// Package cv is cross-validation of a specification. Its rows are cut into folds (package folds); each
// fold is predicted from draws of the posterior of the other rows, by a run of its own. This package
// knows what is learnt from and predicted in each fold, and keeps it, with what came of it, in a
// folder:
//
//	cv.json             what was asked for, and the fold of each row
//	table.csv           the rows, inputs and target
//	fold-K/             the run of fold K, an ordinary one
//	fold-K/left-out.json  the rows of fold K as they were predicted
//
// It does not run anything.
package cv

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/folds"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/sealed"
)

// Scheme is a way to cut rows into folds.
type Scheme string

// The schemes.
const (
	Random    Scheme = "random"
	Groups    Scheme = "groups"
	Blocks    Scheme = "blocks"
	Forecasts Scheme = "forecasts"
)

// DefaultFolds is how many folds there are where nobody asks for a number; of fewer groups or times
// as many as these allow.
const DefaultFolds = 10

// Plan is what is asked for.
type Plan struct {
	SpecText  string    `json:"spec"` // YAML, with every default
	Scheme    Scheme    `json:"scheme"`
	Column    string    `json:"column,omitempty"` // by which rows are cut
	Draws     int       `json:"draws"`            // that predictions are averaged over; 0: as many as are independent
	Tolerance float64   `json:"tolerance"`        // of standard deviations
	Jobs      string    `json:"jobs,omitempty"`   // begins the client ids of the folds' jobs; empty: folds are run here
	Rows      []int     `json:"rows"`             // numbers in the specification's table, from 1
	Cut       folds.Cut `json:"cut"`
	Target    string    `json:"target"`
	Inputs    []string  `json:"inputs,omitempty"` // where other columns say what noise the rows have
	SHA256    string    `json:"table_sha256"`     // of table.csv
	// Levels are those of categories in the specification's table: what is learnt from may lack some.
	Levels job.Levels `json:"levels,omitempty"`
	// Classes are those of the target that have an order, alike.
	Classes []string `json:"classes,omitempty"`
}

// Validation is a plan with its data.
type Validation struct {
	Plan
	Spec *job.Spec
	Data *dataset.Table // the rows of Plan.Rows
}

// New cuts the rows that a specification learns from, of its table t, into k folds, 0 for the default.
// t has the labels that a scheme other than Random cuts by. What any of the folds could not be
// run for is an error.
func New(spec *job.Spec, t *dataset.Table, scheme Scheme, column string, k int) (*Validation, error) {
	if err := spec.Samplable(); err != nil {
		return nil, err
	}
	whole := *spec // a subset is one of each fold's rows
	whole.Model.Approximation = nil
	all, err := whole.Dataset(t)
	if err != nil {
		return nil, err
	}
	rows := all.TrainingRows()
	cut, err := cutRows(spec, t, rows, scheme, k)
	if err != nil && column != "" {
		err = fmt.Errorf("column %q: %w", column, err)
	}
	if err != nil {
		return nil, err
	}
	text, err := spec.YAML()
	if err != nil {
		return nil, err
	}
	v := &Validation{Plan: Plan{SpecText: string(text), Scheme: scheme, Column: column, Cut: *cut, Target: t.Target}, Spec: spec, Data: t.Select(rows)}
	if t.Of != nil {
		v.Inputs = t.Inputs
	}
	v.Data.Dates = nil // which are written as numbers
	if t.Levels != nil {
		v.Levels = map[string][]string{}
		for k, names := range t.Levels {
			if names != nil {
				v.Levels[t.Inputs[k]] = names
			}
		}
	}
	if len(t.Classes) > 2 || likelihood.OfCategories(spec.Model.Conditional()) {
		v.Classes = t.Classes
	}
	for _, row := range rows {
		v.Rows = append(v.Rows, t.Number(row)+1)
	}
	for fold := 1; fold <= cut.K; fold++ {
		if _, err := v.Dataset(fold); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// cutRows cuts the given rows of a table.
func cutRows(spec *job.Spec, t *dataset.Table, rows []int, scheme Scheme, k int) (*folds.Cut, error) {
	if scheme == Random {
		return folds.Random(len(rows), defaulted(k, len(rows)), spec.Seed)
	}
	labels := make([]string, len(rows))
	for i, row := range rows {
		labels[i] = t.Labels[row]
	}
	if scheme == Groups {
		return folds.Groups(labels, defaulted(k, folds.CountGroups(labels)), spec.Seed)
	}
	times, err := folds.Times(labels)
	if err != nil {
		return nil, err
	}
	different := 1 + slices.Max(times)
	if scheme == Forecasts {
		return folds.Forecasts(times, defaulted(k, different-1))
	}
	return folds.Blocks(times, defaulted(k, different))
}

// defaulted returns the number of folds where k were asked for and there can be most.
func defaulted(k, most int) int {
	if k > 0 {
		return k
	}
	return max(2, min(DefaultFolds, most))
}

// maxName is the length of a job's name.
const maxName = 100

// FoldSpec returns the specification of the run that learns when a fold is left out: of a table
// that comes through standard input.
func (v *Validation) FoldSpec(fold int) *job.Spec {
	s := *v.Spec
	suffix := fmt.Sprintf("-fold-%d", fold)
	s.Name = s.Name[:min(len(s.Name), maxName-len(suffix))] + suffix
	s.Data = job.Data{Path: dataset.Stdin, Target: v.Data.Target, Standardize: s.Data.Standardize, Weights: s.Data.Weights, Trials: s.Data.Trials, Offset: v.Data.OffsetOf, Transform: s.Data.Transform,
		Levels: v.Levels, Constant: s.Data.Constant}
	if v.Data.Of != nil { // columns that may be inputs, too
		s.Data.Inputs = v.Data.Inputs
	}
	if dataset.Missing(v.Spec.Data.Missing) == dataset.MissingImpute { // else nothing is missing
		s.Data.Missing = v.Spec.Data.Missing
	}
	s.Data.Categories = slices.Sorted(maps.Keys(v.Levels))
	if v.Classes != nil {
		s.Data.Levels = job.Levels{v.Data.Target: v.Classes}
		maps.Copy(s.Data.Levels, v.Levels)
	}
	s.Notify = nil
	return &s
}

// Learnt returns the rows that are learnt from when a fold is left out.
func (v *Validation) Learnt(fold int) *dataset.Table { return v.Data.Select(v.Cut.Learnt(fold)) }

// LeftOut returns the rows of a fold, and their numbers in the specification's table, from 1. What they lack is NaN.
func (v *Validation) LeftOut(fold int) (t *dataset.Table, numbers []int) {
	rows := v.Cut.LeftOut(fold)
	for _, row := range rows {
		numbers = append(numbers, v.Rows[row])
	}
	return v.Data.Select(rows), numbers
}

// Dataset returns what the run of a fold computes with.
func (v *Validation) Dataset(fold int) (*dataset.Dataset, error) {
	t := v.Learnt(fold)
	if err := t.Check(fmt.Sprintf("what is learnt from when fold %d is left out", fold), false, v.Spec.Data.Constant == "drop"); err != nil {
		return nil, err
	}
	spec := v.FoldSpec(fold)
	d, err := spec.Dataset(t)
	if err == nil {
		_, err = spec.Problem(d)
	}
	if left, _ := v.LeftOut(fold); err == nil && d.Noise != nil {
		_, err = d.Noise.Rows(left.Noise, d.YScale)
	}
	if err != nil {
		return nil, fmt.Errorf("when fold %d is left out: %w", fold, err)
	}
	return d, nil
}

// The files of a cross-validation.
const (
	planFile  = "cv.json"
	tableFile = "table.csv"
)

// IsFolder reports whether a path is the folder of a cross-validation.
func IsFolder(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, planFile))
	return err == nil && info.Mode().IsRegular()
}

// Unbegun reports whether a file in a folder may have been left by a cross-validation that was cut short
// before it had begun.
func Unbegun(name string) bool {
	return name == tableFile || strings.HasPrefix(name, "."+tableFile+".") || strings.HasPrefix(name, "."+planFile+".")
}

// FoldDir returns the folder of a fold's run.
func FoldDir(dir string, fold int) string { return filepath.Join(dir, fmt.Sprintf("fold-%d", fold)) }

// Write begins the folder of a cross-validation.
func (v *Validation) Write(dir string) error {
	var table bytes.Buffer
	if err := v.Data.WriteCSV(&table); err != nil {
		return err
	}
	v.SHA256 = hash(table.Bytes())
	text, err := sealed.Marshal(v.Plan)
	if err != nil {
		return err
	}
	if err := atomicfile.WriteBytes(filepath.Join(dir, tableFile), 0o644, table.Bytes()); err != nil {
		return err
	}
	return atomicfile.WriteBytes(filepath.Join(dir, planFile), 0o644, text)
}

func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Read returns the cross-validation of a folder.
func Read(dir string) (*Validation, error) {
	path := filepath.Join(dir, planFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no cross-validation in %s, or it was cut short before it had begun", dir)
	}
	if err != nil {
		return nil, err
	}
	v := &Validation{}
	if err = sealed.Unmarshal(text, &v.Plan); err == nil {
		v.Spec, err = job.Parse(strings.NewReader(v.SpecText), "the specification")
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	path = filepath.Join(dir, tableFile)
	if text, err = os.ReadFile(path); err != nil {
		return nil, err
	}
	if hash(text) != v.SHA256 {
		return nil, fmt.Errorf("%s was changed or is damaged: it has another checksum", path)
	}
	sel := dataset.Select{Target: v.Target, Inputs: v.Inputs, Noise: v.Spec.NoiseColumns(), Offset: v.Spec.OffsetColumn(), Points: true,
		Levels: v.Levels, Categories: slices.Sorted(maps.Keys(v.Levels)), Missing: dataset.Missing(v.Spec.Data.Missing),
		Ordered: v.Classes != nil, Classes: v.Classes}
	v.Data, err = dataset.Read(bytes.NewReader(text), path, sel, dataset.DefaultLimits)
	if err == nil && (v.Data.Rows() != len(v.Rows) || len(v.Cut.Fold) != len(v.Rows)) {
		err = fmt.Errorf("%s does not have the rows of %s", path, planFile)
	}
	return v, err
}
