package cli

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/ulisse-gp/ulisse/internal/cv"
	"github.com/ulisse-gp/ulisse/internal/loo"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// cvView is what 'ulisse cv --json' prints: an estimate as R's loo names its parts.
type cvView struct {
	ELPD     report.Number   `json:"elpd_kfold"`
	SE       report.Number   `json:"se_elpd_kfold"`
	IC       report.Number   `json:"kfoldic"`
	Scheme   cv.Scheme       `json:"scheme"`
	Column   string          `json:"column,omitempty"`
	Units    int             `json:"units"` // that standard errors are between: rows, groups, stretches of time
	Rows     int             `json:"rows"`  // left out in turn
	Draws    int             `json:"draws"` // averaged over, in the fold with the fewest
	Scores   *predict.Scores `json:"scores"`
	Folds    []foldView      `json:"folds"`
	Warnings []string        `json:"warnings"`
}

// foldView is a fold in it.
type foldView struct {
	Fold      int           `json:"fold"`
	Learnt    int           `json:"learnt_from"`
	Rows      int           `json:"rows"`
	ELPD      report.Number `json:"elpd"`
	RMSE      report.Number `json:"rmse"`
	CRPS      report.Number `json:"crps"`
	RHat      report.Number `json:"rhat"`
	Converged bool          `json:"converged"`
}

func newFoldView(v *cv.Validation, f *cv.Fold) foldView {
	s := cv.Scores(f.Rows, v.Spec.Model.Conditional())
	if s.Unordered != nil { // classes without an order have no distance
		s.RMSE = math.NaN()
	}
	return foldView{f.Fold, f.Learnt, s.Rows, report.Number(s.MLPD * float64(s.Rows)), report.Number(s.RMSE), report.Number(s.CRPS), f.RHat, f.Converged}
}

// words tells of a fold in a line.
func (f foldView) words() string {
	text := fmt.Sprintf("elpd %.1f, RMSE %.4g, CRPS %.4g", float64(f.ELPD), float64(f.RMSE), float64(f.CRPS))
	if !math.IsNaN(float64(f.RHat)) {
		text += fmt.Sprintf(", R-hat %.3f", float64(f.RHat))
	}
	if !f.Converged {
		text += ": not converged"
	}
	return text
}

func newCVView(v *cv.Validation, all []*cv.Fold) *cvView {
	res := v.Result(all)
	e := res.ELPD()
	out := &cvView{ELPD: report.Number(e.Value), SE: report.Number(e.SE), IC: report.Number(-2 * e.Value), Scheme: v.Scheme, Column: v.Column,
		Units: units(res), Rows: len(res.Rows), Draws: math.MaxInt, Scores: cv.Scores(cv.Rows(all), v.Spec.Model.Conditional()), Warnings: []string{}}
	for _, f := range all {
		out.Folds = append(out.Folds, newFoldView(v, f))
		out.Draws = min(out.Draws, f.Draws)
		for _, w := range f.Warnings {
			out.Warnings = append(out.Warnings, fmt.Sprintf("fold %d: %s", f.Fold, w))
		}
	}
	if bad := out.unconverged(); len(bad) > 0 {
		out.Warnings = append(out.Warnings, listed(bad)+" did not converge: what is told of their rows may change with more draws")
	}
	return out
}

// units returns how many units standard errors are between.
func units(r *loo.Result) int {
	if r.Units == nil {
		return len(r.Rows)
	}
	seen := map[int]bool{}
	for _, u := range r.Units {
		seen[u] = true
	}
	return len(seen)
}

// unconverged returns the folds that have not converged.
func (v *cvView) unconverged() (folds []int) {
	for _, f := range v.Folds {
		if !f.Converged {
			folds = append(folds, f.Fold)
		}
	}
	return folds
}

// about says what was left out.
func (v *cvView) about() string {
	switch n := len(v.Folds); v.Scheme {
	case cv.Groups:
		return fmt.Sprintf("%d rows in %d folds of %d groups of %q; standard errors are between groups.", v.Rows, n, v.Units, v.Column)
	case cv.Blocks:
		return fmt.Sprintf("%d rows in %d stretches of %q, each predicted from all others; standard errors are between stretches.", v.Rows, n, v.Column)
	case cv.Forecasts:
		return fmt.Sprintf("%d rows in %d stretches of %q, each predicted from those before it; standard errors are between stretches.", v.Rows, n, v.Column)
	default:
		return fmt.Sprintf("%d rows in %d folds, cut at random.", v.Rows, n)
	}
}

// write prints an estimate as R's loo prints it, the scores, and a line for each fold.
func (v *cvView) write(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\n", v.about())
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "\tEstimate\tSE\t\n")
	fmt.Fprintf(tw, "elpd_kfold\t%.1f\t%.1f\t\n", float64(v.ELPD), float64(v.SE))
	fmt.Fprintf(tw, "kfoldic\t%.1f\t%.1f\t\n", float64(v.IC), 2*float64(v.SE))
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := v.Scores.WriteText(w); err != nil {
		return err
	}
	fmt.Fprint(tw, "\nfold\tlearnt from\trows\telpd\tRMSE\tCRPS\tR-hat\t\n")
	mark := "" // what the mark means
	for _, f := range v.Folds {
		name := fmt.Sprint(f.Fold)
		if !f.Converged {
			name, mark = "* "+name, "* not converged\n"
		}
		fmt.Fprintf(tw, "%s\t%d\t%d\t%.1f\t%.4g\t%.4g\t%.3f\t\n", name, f.Learnt, f.Rows, float64(f.ELPD), float64(f.RMSE), float64(f.CRPS), float64(f.RHat))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, mark)
	return err
}

// cvRank is a cross-validation in a comparison.
type cvRank struct {
	rankView
	cvView
}

// compareCV compares the cross-validations in folders.
func (a *App) compareCV(dirs []string, asJSON bool) error {
	results, looks := make([]*loo.Result, len(dirs)), make([]*cvView, len(dirs))
	for i, dir := range dirs {
		v, all, err := cv.ReadAll(dir)
		if err != nil {
			return badInput(err)
		}
		results[i], looks[i] = v.Result(all), newCVView(v, all)
	}
	ranks, err := loo.Compare(results)
	if err != nil {
		return badInput(err)
	}
	var views []cvRank
	var order []rankView
	var rows [][]string
	for i, r := range ranks {
		v := cvRank{newRankView(dirs[r.Model], i, r), *looks[r.Model]}
		views, order = append(views, v), append(order, v.rankView)
		rows = append(rows, []string{v.Model, one(v.Diff), one(v.SEDiff), one(v.ELPD), one(v.SE), fmt.Sprintf("%.4g", v.Scores.RMSE), fmt.Sprintf("%.4g", v.Scores.CRPS),
			fmt.Sprintf("%.2f", float64(v.Weight))})
	}
	if asJSON {
		return a.printJSON(views)
	}
	for _, v := range views {
		for _, w := range v.Warnings {
			a.warnings([]string{v.Model + ": " + w})
		}
	}
	if err := a.table("MODEL ELPD_DIFF SE_DIFF ELPD_KFOLD SE RMSE CRPS WEIGHT", rows); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.Stdout, inWords(order))
	return err
}
