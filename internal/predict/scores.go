package predict

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// Levels are those of the central intervals whose coverage is told.
var Levels = []float64{0.5, 0.9, 0.95}

// Scores are how well rows were predicted whose targets are known.
type Scores struct {
	Rows     int          `json:"rows"`
	RMSE     float64      `json:"rmse"` // of the means, in the units of the target
	MLPD     float64      `json:"mlpd"` // mean log predictive density; MNLP is its negative
	CRPS     float64      `json:"crps"` // mean, in the units of the target
	Coverage []Coverage   `json:"coverage"`
	Classes  *ClassScores `json:"classes,omitempty"` // where targets are classes
}

// Coverage is the share of targets within the central interval of a level.
type Coverage struct {
	Level  float64 `json:"level"`
	Within float64 `json:"within"`
}

// Score returns the scores of the rows whose targets are known. It panics if there
// are none.
func Score(all []Row) *Scores {
	var rows []Row
	for _, r := range all {
		if r.known() {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		panic("predict: scores of no rows")
	}
	n := float64(len(rows))
	s := &Scores{Rows: len(rows)}
	for _, r := range rows {
		s.RMSE += (r.Mean - r.Target) * (r.Mean - r.Target) / n
		s.MLPD += r.LogDensity / n
		s.CRPS += r.CRPS / n
	}
	s.RMSE = math.Sqrt(s.RMSE)
	for _, level := range Levels {
		within := 0
		for _, r := range rows {
			if math.Abs(2*r.PIT-1) <= level {
				within++
			}
		}
		s.Coverage = append(s.Coverage, Coverage{level, float64(within) / n})
	}
	return s
}

// WriteText writes the scores as a table of one line.
func (s *Scores) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if c := s.Classes; c != nil {
		auc := "-"
		if c.AUC != nil {
			auc = fmt.Sprintf("%.4g", *c.AUC)
		}
		fmt.Fprintf(tw, "rows\terror\tMLPD\tBrier\tAUC\t\n%d\t%.4g\t%.4g\t%.4g\t%s\t\n", s.Rows, c.Error, s.MLPD, c.Brier, auc)
		return tw.Flush()
	}
	fmt.Fprint(tw, "rows\tRMSE\tMLPD\tCRPS\t")
	for _, c := range s.Coverage {
		fmt.Fprintf(tw, "in %g %%\t", 100*c.Level)
	}
	fmt.Fprintf(tw, "\n%d\t%.4g\t%.4g\t%.4g\t", s.Rows, s.RMSE, s.MLPD, s.CRPS)
	for _, c := range s.Coverage {
		fmt.Fprintf(tw, "%.1f %%\t", 100*c.Within)
	}
	fmt.Fprintln(tw)
	return tw.Flush()
}
