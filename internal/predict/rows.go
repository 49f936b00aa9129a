package predict

import (
	"context"
	"encoding/csv"
	"io"
	"math"
	"strconv"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Request asks for predictions in the user's units.
type Request struct {
	X       [][]float64 // rows of the inputs, in original units
	Targets []float64   // what was observed there, nil if that is not known
	Probs   []float64   // of quantiles, strictly between 0 and 1
}

// Row is the prediction of a row, in the units of the target: its mixture's
// moments and quantiles. Where the target is known it is held against the
// mixture of the target, noise and all, whatever was asked for.
type Row struct {
	Mean, SD   float64
	Quantiles  []float64 // as many as were asked for
	Target     float64   // NaN if not known, and with it those that follow
	LogDensity float64   // of the target
	CRPS       float64
	PIT        float64 // probability of what is below the target
}

// Rows predicts rows from a posterior of the described data.
func (p *Predictor) Rows(ctx context.Context, info *dataset.Info, r Request, o Options) ([]Row, Stats, error) {
	m, stats, err := p.Predict(ctx, info.Standardize(r.X), o)
	if err != nil {
		return nil, stats, err
	}
	return Summarize(m, info.YScale, r, o.Latent, p.Budget), stats, nil
}

// Summarize returns the rows of moments.
func Summarize(m *Moments, scale dataset.Scale, r Request, latent bool, budget *parallel.Budget) []Row {
	out := make([]Row, len(r.X))
	budget.NewLoop(func(_, i int) {
		noisy := m.Mixture(i, false).Scaled(scale.Mean, scale.SD)
		told := noisy
		if latent {
			told = m.Mixture(i, true).Scaled(scale.Mean, scale.SD)
		}
		row := &out[i]
		row.Mean, row.SD = told.Moments()
		for _, p := range r.Probs {
			row.Quantiles = append(row.Quantiles, told.Quantile(p))
		}
		row.Target, row.LogDensity, row.CRPS, row.PIT = math.NaN(), math.NaN(), math.NaN(), math.NaN()
		if r.Targets != nil {
			y := r.Targets[i]
			row.Target, row.LogDensity, row.CRPS, row.PIT = y, noisy.LogDensity(y), noisy.CRPS(y), noisy.CDF(y)
		}
	}).Run(len(out))
	return out
}

// QuantileName returns the name of a quantile in tables: q2.5 for 0.025.
func QuantileName(p float64) string { return "q" + strconv.FormatFloat(100*p, 'g', 10, 64) }

// WriteCSV writes a table of predictions: row, the row's number from first on;
// mean, sd, and the quantiles of the given probabilities; and, where targets are
// known, target, log_density, crps and pit. Values are exact. numbers, if not
// nil, are the rows' numbers.
func WriteCSV(w io.Writer, rows []Row, probs []float64, numbers []int) error {
	cw := csv.NewWriter(w)
	head := []string{"row", "mean", "sd"}
	for _, p := range probs {
		head = append(head, QuantileName(p))
	}
	known := len(rows) > 0 && !math.IsNaN(rows[0].Target)
	if known {
		head = append(head, "target", "log_density", "crps", "pit")
	}
	if err := cw.Write(head); err != nil {
		return err
	}
	for i, r := range rows {
		number := i + 1
		if numbers != nil {
			number = numbers[i]
		}
		rec := []string{strconv.Itoa(number)}
		values := append([]float64{r.Mean, r.SD}, r.Quantiles...)
		if known {
			values = append(values, r.Target, r.LogDensity, r.CRPS, r.PIT)
		}
		for _, v := range values {
			rec = append(rec, strconv.FormatFloat(v, 'g', -1, 64))
		}
		if err := cw.Write(rec); err != nil {
			return err
		}
	}
	cw.Flush()
	return cw.Error()
}
