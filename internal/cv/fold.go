package cv

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/loo"
	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/sealed"
)

// Fold is what came of a fold.
type Fold struct {
	Fold      int           `json:"fold"`
	Learnt    int           `json:"learnt_from"` // rows
	Rows      []Row         `json:"rows"`
	Draws     int           `json:"draws"`        // averaged over
	DrawsOf   string        `json:"draws_sha256"` // of all that the run made
	RHat      report.Number `json:"rhat"`         // the largest of the model's parameters; null if that cannot be told
	Converged bool          `json:"converged"`
	Warnings  []string      `json:"warnings"`
}

// Row is a row that was left out, in the units of the target.
type Row struct {
	Number     int           `json:"row"` // in the specification's table, from 1
	Target     float64       `json:"target"`
	Mean       report.Number `json:"mean"` // mean, sd and pit are NaN of classes without an order
	SD         report.Number `json:"sd"`
	LogDensity float64       `json:"log_density"`
	CRPS       float64       `json:"crps"`
	PIT        report.Number `json:"pit"`
	// Classes are the target's with their probabilities, where there are three or more, or they have no order.
	Classes []predict.Class `json:"classes,omitempty"`
}

// NewFold returns what came of a fold: the predictions of its rows, from the draws of its run.
func (v *Validation) NewFold(fold int, rec *report.Record, rows []predict.Row, stats predict.Stats, warnings []string) *Fold {
	sum := rec.Summary()
	f := &Fold{Fold: fold, Learnt: rec.Data.Rows, Draws: stats.Draws, DrawsOf: report.DrawsSHA256(rec.Run), Converged: sum.Converged, Warnings: warnings,
		RHat: report.Number(math.Inf(-1))}
	for _, p := range sum.Parameters[:len(rec.Run.Plan.Names)] { // the model's parameters are the first
		f.RHat = max(f.RHat, p.RHat) // NaN if one is
	}
	_, numbers := v.LeftOut(fold)
	for i, r := range rows {
		f.Rows = append(f.Rows, Row{numbers[i], r.Target, report.Number(r.Mean), report.Number(r.SD), r.LogDensity, r.CRPS, report.Number(r.PIT), r.Classes})
	}
	return f
}

// foldFile is the name of a Fold in the folder of its run.
const foldFile = "left-out.json"

// Write keeps what came of the fold in the folder of a cross-validation.
func (f *Fold) Write(dir string) error {
	text, err := sealed.Marshal(f)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(filepath.Join(FoldDir(dir, f.Fold), foldFile), 0o644, text)
}

// ReadFold returns what came of a fold, or nil if that is not known yet.
func (v *Validation) ReadFold(dir string, fold int) (*Fold, error) {
	path := filepath.Join(FoldDir(dir, fold), foldFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := &Fold{}
	if err = sealed.Unmarshal(text, f); err == nil {
		_, numbers := v.LeftOut(fold)
		if f.Fold != fold || !slices.EqualFunc(f.Rows, numbers, func(r Row, number int) bool { return r.Number == number }) {
			err = errors.New("it is not of the rows of this fold")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	return f, nil
}

// ReadAll returns the cross-validation of a folder that has come to its end, with what came of each fold.
func ReadAll(dir string) (*Validation, []*Fold, error) {
	v, err := Read(dir)
	if err != nil {
		return nil, nil, err
	}
	all := make([]*Fold, v.Cut.K)
	for i := range all {
		if all[i], err = v.ReadFold(dir, i+1); err != nil {
			return nil, nil, err
		}
		if all[i] == nil {
			return nil, nil, fmt.Errorf("the cross-validation in %s has not ended: fold %d of %d is not predicted yet; 'ulisse cv --resume %s' continues it", dir, i+1, v.Cut.K, dir)
		}
	}
	return v, all, nil
}

// Result returns the rows of all folds, by their numbers, as models are compared by.
func (v *Validation) Result(all []*Fold) *loo.Result {
	var rows []loo.Row
	for _, f := range all {
		for _, r := range f.Rows {
			rows = append(rows, loo.Row{Number: r.Number, Target: r.Target, Mean: float64(r.Mean), SD: float64(r.SD), ELPD: r.LogDensity, PIT: float64(r.PIT), Fold: f.Fold})
		}
	}
	slices.SortFunc(rows, func(a, b loo.Row) int { return cmp.Compare(a.Number, b.Number) })
	var units []int
	for i, fold := range v.Cut.Fold { // in the order of numbers, too
		if v.Cut.Unit != nil && fold > 0 {
			units = append(units, v.Cut.Unit[i])
		}
	}
	return loo.KFold(rows, units)
}

// Scores returns how well rows were predicted, under a likelihood.
func Scores(rows []Row, l likelihood.Likelihood) *predict.Scores {
	return predict.Score(PredictedRows(rows), l)
}

// PredictedRows returns rows as they were predicted.
func PredictedRows(rows []Row) []predict.Row {
	out := make([]predict.Row, len(rows))
	for i, r := range rows {
		out[i] = predict.Row{Target: r.Target, Mean: float64(r.Mean), SD: float64(r.SD), LogDensity: r.LogDensity, CRPS: r.CRPS, PIT: float64(r.PIT), Classes: r.Classes}
	}
	return out
}

// Rows returns the rows of folds, one fold after the other.
func Rows(all []*Fold) (rows []Row) {
	for _, f := range all {
		rows = append(rows, f.Rows...)
	}
	return rows
}

// calibration draws how predictions agree with the targets.
func (v *Validation) calibration(w io.Writer, all []*Fold) error {
	rows := Rows(all)
	if len(rows) == 0 || rows[0].Classes == nil {
		return plots.Calibration(w, v.Result(all).PIT())
	}
	var names []string
	for _, c := range rows[0].Classes {
		names = append(names, c.Name)
	}
	var p [][]float64
	var class []int
	for _, r := range rows {
		var shares []float64
		for _, c := range r.Classes {
			shares = append(shares, c.Probability)
		}
		p, class = append(p, shares), append(class, int(r.Target))
	}
	return plots.Classes(w, names, p, class)
}

// WriteResults writes what came of all folds into the folder of a cross-validation: rows.csv, a table of
// the rows, calibration.svg, a picture of their PIT, or of three or more classes of their probabilities, and summary.json.
func (v *Validation) WriteResults(dir string, all []*Fold, summary any) error {
	for _, file := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"rows.csv", func(w io.Writer) error { return WriteCSV(w, all) }},
		{"calibration.svg", func(w io.Writer) error { return v.calibration(w, all) }},
		{"summary.json", func(w io.Writer) error {
			enc := json.NewEncoder(w)
			enc.SetIndent("", "  ")
			return enc.Encode(summary)
		}},
	} {
		if err := atomicfile.Write(filepath.Join(dir, file.name), 0o644, file.write); err != nil {
			return err
		}
	}
	return nil
}

// WriteCSV writes a table of the rows of all folds, by their numbers: row, fold, target, mean, sd,
// log_density, crps, pit, and whether the chains of the fold have converged. Values are exact.
func WriteCSV(w io.Writer, all []*Fold) error {
	type line struct {
		number int
		fields []string
	}
	var lines []line
	for _, f := range all {
		for _, r := range f.Rows {
			fields := []string{strconv.Itoa(r.Number), strconv.Itoa(f.Fold)}
			for _, x := range []float64{r.Target, float64(r.Mean), float64(r.SD), r.LogDensity, r.CRPS, float64(r.PIT)} {
				fields = append(fields, strconv.FormatFloat(x, 'g', -1, 64))
			}
			lines = append(lines, line{r.Number, append(fields, strconv.FormatBool(f.Converged))})
		}
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.number, b.number) })
	cw := csv.NewWriter(w)
	cw.Write([]string{"row", "fold", "target", "mean", "sd", "log_density", "crps", "pit", "converged"})
	for _, l := range lines {
		cw.Write(l.fields)
	}
	cw.Flush()
	return cw.Error()
}
