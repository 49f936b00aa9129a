package dashboard

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/expression"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/predict"
)

// Of curves: their points, and how far they go from the middle, in standard deviations of the input.
const (
	curvePoints = 41
	curveReach  = 2.5
)

// curvePolicy is policy with pictures that are part of the page: those of one answer are at no address.
var curvePolicy = strings.Replace(policy, "img-src 'self'", "img-src 'self' data:", 1)

// curveView is how the target, or what a term of the covariance adds to it, depends on an input.
type curveView struct {
	Text string
	SVG  template.URL
}

// predictCurve predicts along an input, all others as they were typed.
func (d *Dashboard) predictCurve(w http.ResponseWriter, r *http.Request) {
	d.predictForm(w, r, maxSpecForm, func(v *predictView, j *pb.Job) {
		x := v.read(r)
		along, err := strconv.Atoi(r.PostFormValue("along"))
		if x == nil || err != nil || along < 0 || along >= len(v.Inputs) {
			v.Error = "Every input takes a number, and the curve an input."
			d.showPredict(w, r, http.StatusBadRequest, v)
			return
		}
		v.Along = along
		at := v.along(x)
		req := predict.Request{Probs: interval, Terms: severalTerms(j)}
		for _, value := range at {
			req.X = append(req.X, v.info.With(x, along, value))
		}
		rows, err := d.predicted(r.Context(), j, req, v.Latent)
		if err != nil {
			v.Error = plain(err)
			d.showPredict(w, r, httpStatus(err), v)
			return
		}
		expected, latent := tells(j)
		if v.Latent && v.info.Transform.Kind == likelihood.None { // a transform is undone
			expected = latent
		}
		if v.Curves, err = drawCurves(v, expected, latent, at, rows); err != nil {
			v.Error = fmt.Sprintf("The curve cannot be drawn: %v.", err)
			d.showPredict(w, r, http.StatusInternalServerError, v)
			return
		}
		w.Header().Set("Content-Security-Policy", curvePolicy)
		d.showPredict(w, r, http.StatusOK, v)
	})
}

// along returns the values of the input that curves are drawn along: the levels of a category, or points around the middle.
func (v *predictView) along(x []float64) (at []float64) {
	if levels := v.info.LevelsOf(v.Along); levels != nil {
		for code := range levels {
			at = append(at, float64(code))
		}
		return at
	}
	scale := dataset.Scale{Mean: x[v.Along], SD: 1}
	if v.Along < len(v.info.XScale) {
		scale = v.info.XScale[v.Along]
	}
	for i := range curvePoints {
		at = append(at, scale.Mean+scale.SD*curveReach*(2*float64(i)/(curvePoints-1)-1))
	}
	return at
}

// severalTerms reports whether a job's covariance is a sum, of one latent function.
func severalTerms(j *pb.Job) bool {
	spec, err := job.ParseString(j.Spec)
	if err != nil || !expression.Is(spec.Model.Kernel) || spec.Model.Several() {
		return false
	}
	e, err := expression.Parse(spec.Model.Kernel)
	return err == nil && len(e.Terms()) > 1
}

// tells says what is predicted of a job's target: what it is expected to be, and what the function is.
func tells(j *pb.Job) (expected, latent string) {
	info := dataset.InfoOf(j.Data)
	spec, err := job.ParseString(j.Spec)
	if err != nil {
		return info.Target, info.Learnt()
	}
	return spec.Tells(info)
}

// drawCurves draws what was predicted along an input: the whole, and each term of the function, whose values
// are those of the function.
func drawCurves(v *predictView, expected, latent string, at []float64, rows []predict.Row) ([]curveView, error) {
	input := v.Inputs[v.Along].Name
	axis := plots.Axis{Name: input, Levels: v.info.LevelsOf(v.Along)}
	if v.info.DateOf(v.Along).Unit != "" {
		axis.Text = func(x float64) string { return v.info.Text(v.Along, x) }
	}
	whole := plots.Curve{Name: "mean", X: at}
	terms := make([]plots.Curve, len(rows[0].Terms))
	for _, row := range rows {
		whole.Y = append(whole.Y, row.Mean)
		whole.Lo, whole.Hi = append(whole.Lo, row.Quantiles[0]), append(whole.Hi, row.Quantiles[2])
		for t, term := range row.Terms {
			c := &terms[t]
			c.Name, c.X, c.Y = "mean", at, append(c.Y, term.Mean)
			c.Lo, c.Hi = append(c.Lo, term.Mean-1.96*term.SD), append(c.Hi, term.Mean+1.96*term.SD)
		}
	}
	what := "an observation, noise and all"
	if v.Latent {
		what = "the function without the noise"
	}
	out := []curveView{}
	add := func(title, text, target, band string, curves ...plots.Curve) error {
		var b bytes.Buffer
		if err := plots.Curves(&b, title, text, axis, target, band, curves); err != nil {
			return err
		}
		out = append(out, curveView{text, template.URL("data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(b.Bytes()))})
		return nil
	}
	if rows[0].Unordered() {
		err := add(expected+" over "+input, fmt.Sprintf("The probability of each class of %s along %s, the other inputs as typed.", v.Target, input), expected, "", shares(at, rows)...)
		return out, err
	}
	if err := add(expected+" over "+input, fmt.Sprintf("%s along %s, the other inputs as typed: the mean and the 95 %% interval of %s.", expected, input, what), expected, "2.5 % to 97.5 %", whole); err != nil {
		return nil, err
	}
	for t, c := range terms {
		name := rows[0].Terms[t].Name
		if err := add(name+" over "+input, fmt.Sprintf("What the term %s adds to the function along %s: the mean ± 1.96 sd.", name, input), latent, "± 1.96 sd", c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// shares returns the probability of each class along an input.
func shares(at []float64, rows []predict.Row) []plots.Curve {
	out := make([]plots.Curve, len(rows[0].Classes))
	for c := range out {
		out[c] = plots.Curve{Name: rows[0].Classes[c].Name, X: at}
		for _, row := range rows {
			out[c].Y = append(out[c].Y, row.Classes[c].Probability)
		}
	}
	return out
}
