package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/predict"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// Limits of predictions from a page.
const (
	maxTable       = 8 << 20          // bytes of a table
	maxTableBytes  = 64 << 20         // of it, decompressed and read
	maxTableRows   = 10_000           // for more there is ulisse predict
	maxPredictions = 8                // at once
	predictMost    = 10 * time.Minute // the first ones of a job solve for the targets, once for every draw
)

// interval are the quantiles that are told: the ends of the 95 % interval, and the median.
var interval = []float64{0.025, 0.5, 0.975}

// predictView is the page on which rows are predicted.
type predictView struct {
	Job    jobView
	info   *dataset.Info
	Token  string
	Target string
	Inputs []inputView
	Latent bool   // without the noise
	From   string // what the predictions are from, if the job has not ended with draws
	None   string // why there is nothing to predict from
	Means  bool   // values are the inputs' means
	Answer *answerView
	Along  int         // the input of the curves
	Curves []curveView // of the whole, and of each term of a sum
	Error  string
	Rows   int // of a table, at most
}

// inputView is a field of the form; Wrong says why it will not do.
type inputView struct {
	Name, Value, Wrong string
	Hint               string   // how it is written, if it is no number
	Levels             []string // of a category
	Optional           bool     // it may be missing
}

// answerView is a prediction.
type answerView struct {
	Mean, SD, Low, Median, High string
	Classes                     []classView    // of the target, in order; nil but where it has three or more, or they have no order
	Unordered                   bool           // which has none of Mean to High
	Functions                   []functionView // of several latent functions what is told of each, if the noise is left out
}

type classView struct{ Name, Probability string }

// functionView is what is told of one of several latent functions: its mean and sd.
type functionView struct{ Name, Value string }

// newPredictView returns the page for a job, with its inputs' means.
func newPredictView(j *pb.Job) *predictView {
	v := &predictView{Job: newJobView(j), Target: j.GetData().GetTarget(), Rows: maxTableRows}
	if v.Target == "" {
		v.Target = "target"
	}
	switch draws := client.MinDraws(j.GetProgress()); {
	case j.GetData().GetSha256() == "":
		v.None = fmt.Sprintf("There is nothing to predict from yet: the job is %s, and no worker has read its data.", v.Job.State)
		return v
	case draws == 0:
		v.From = "The job has no draws yet. Predictions are provisional, from its warm-up or the normal approximation at the mode."
	case !v.Job.Over:
		v.From = fmt.Sprintf("The job goes on. Predictions are from the first %d draws of each chain.", draws)
	}
	spec, err := job.ParseString(j.Spec)
	v.Means = err == nil && spec.Data.Standardize // else nobody has computed them
	v.info = dataset.InfoOf(j.Data)
	if v.info.Offset != "" {
		v.From = strings.TrimSpace(v.From + " What is typed is predicted with an offset of 0, the rows of a table with that of their column " + v.info.Offset + ".")
	}
	for i, name := range v.info.InputNames[:v.info.Columns()] {
		in := inputView{Name: name, Levels: v.info.LevelsOf(i), Optional: v.info.MayLack(i)}
		date := v.info.DateOf(i).Unit != ""
		switch known := v.Means && i < len(v.info.XScale); {
		case date && known:
			in.Value = v.info.Text(i, v.info.XScale[i].Mean)
		case in.Levels == nil && known:
			in.Value = strconv.FormatFloat(v.info.XScale[i].Mean, 'g', 4, 64)
		}
		if date {
			in.Hint = "as in " + v.info.Text(i, 0)
		}
		v.Inputs = append(v.Inputs, in)
	}
	return v
}

func (d *Dashboard) predictPage(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	if j := d.job(ctx, w, r); j != nil {
		d.showPredict(w, r, http.StatusOK, newPredictView(j))
	}
}

func (d *Dashboard) showPredict(w http.ResponseWriter, r *http.Request, code int, v *predictView) {
	v.Token = token(w, r)
	d.page(w, r, code, page{Title: "Predict from " + v.Job.Title, Section: "jobs"}, "predict", v)
}

// predictForm reads a form of the page and calls do with its job, of which it says whether the form asks to
// leave the noise out. Why that cannot be it tells the viewer.
func (d *Dashboard) predictForm(w http.ResponseWriter, r *http.Request, most int64, do func(v *predictView, j *pb.Job)) {
	err := readForm(w, r, most)
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	j := d.job(ctx, w, r)
	if j == nil {
		return
	}
	v := newPredictView(j)
	v.Latent = r.PostFormValue("latent") != ""
	select {
	case d.predicting <- struct{}{}:
		defer func() { <-d.predicting }()
	default:
		err = errPredicting
	}
	switch {
	case err != nil:
		v.Error = plain(err)
		d.showPredict(w, r, httpStatus(err), v)
	case v.None != "":
		d.showPredict(w, r, http.StatusConflict, v)
	default:
		do(v, j)
	}
}

var errPredicting = status.Error(codes.ResourceExhausted, "as many predictions are under way as this coordinator has made at once: try again")

// predictRow predicts the row that was typed.
func (d *Dashboard) predictRow(w http.ResponseWriter, r *http.Request) {
	d.predictForm(w, r, maxSpecForm, func(v *predictView, j *pb.Job) {
		x := v.read(r)
		if x == nil {
			v.Error = "Not every input can be used."
			d.showPredict(w, r, http.StatusBadRequest, v)
			return
		}
		rows, err := d.predicted(r.Context(), j, predict.Request{X: [][]float64{x}, Probs: interval}, v.Latent)
		if err != nil {
			v.Error = plain(err)
			d.showPredict(w, r, httpStatus(err), v)
			return
		}
		four := func(x float64) string { return value("%.4g", report.Number(x)) }
		p := rows[0]
		v.Answer = &answerView{Unordered: p.Unordered(), Mean: four(p.Mean), SD: value("%.3g", report.Number(p.SD)), Low: four(p.Quantiles[0]), Median: four(p.Quantiles[1]), High: four(p.Quantiles[2])}
		for _, c := range p.Classes {
			v.Answer.Classes = append(v.Answer.Classes, classView{c.Name, value("%.3g", report.Number(c.Probability))})
		}
		for _, f := range p.Functions {
			v.Answer.Functions = append(v.Answer.Functions, functionView{f.Name, four(f.Mean) + " ± " + value("%.2g", report.Number(f.SD))})
		}
		d.showPredict(w, r, http.StatusOK, v)
	})
}

// read takes the inputs from a form and returns them: nil unless all can be used.
func (v *predictView) read(r *http.Request) []float64 {
	v.Means = false
	var x []float64
	for i := range v.Inputs {
		in := &v.Inputs[i]
		in.Value = strings.TrimSpace(r.PostFormValue("x" + strconv.Itoa(i)))
		number, err := v.info.Number(i, strings.Replace(in.Value, "−", "-", 1))
		switch {
		case in.Value == "" && !in.Optional:
			in.Wrong = "is missing"
		case err != nil && (in.Levels != nil || in.Hint != ""):
			in.Wrong = err.Error()
		case err != nil:
			in.Wrong = "is not a number"
		default:
			x = append(x, number)
		}
	}
	if len(x) < len(v.Inputs) {
		return nil
	}
	return v.info.Complete(x)
}

// predictTable predicts the rows of a table and sends them as another.
func (d *Dashboard) predictTable(w http.ResponseWriter, r *http.Request) {
	d.predictForm(w, r, maxTable, func(v *predictView, j *pb.Job) {
		rows, err := d.tableRows(r, v, j)
		if err != nil {
			v.Error = plain(err)
			d.showPredict(w, r, httpStatus(err), v)
			return
		}
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": j.Name + "-predictions.csv"}))
		w.Header().Set("Cache-Control", "no-store")
		_ = predict.WriteCSV(w, rows, nil, interval, nil) // who is gone reads nothing
	})
}

// tableRows predicts the rows of the table of a form.
func (d *Dashboard) tableRows(r *http.Request, v *predictView, j *pb.Job) ([]predict.Row, error) {
	file, _, err := r.FormFile("table")
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "choose a file first: a table in CSV, Parquet, Arrow or NPZ with a column for each input")
	}
	defer file.Close()
	p, err := v.info.ReadPoints("the table", file, dataset.Limits{Rows: maxTableRows, Columns: dataset.DefaultLimits.Columns, Bytes: maxTableBytes})
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	req := predict.Request{X: p.X, Targets: p.Y, Noise: p.Noise, Offset: p.Offset, Probs: interval}
	switch {
	case p.Lacks == "":
	case !v.Latent:
		return nil, status.Errorf(codes.InvalidArgument, "the table has no column %q, which says what noise its rows have: add it, or leave the noise out", p.Lacks)
	default:
		req.Targets = nil // of which nothing can be told
	}
	return d.predicted(r.Context(), j, req, v.Latent)
}

// predicted has rows predicted from a job, a batch at a time, all from the same draws.
func (d *Dashboard) predicted(ctx context.Context, j *pb.Job, req predict.Request, latent bool) (out []predict.Row, err error) {
	ctx, cancel := context.WithTimeout(ctx, predictMost)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	draws := ""
	for size, lo := predict.Batch(int(j.Data.N)), 0; lo < len(req.X); lo += size {
		hi := min(lo+size, len(req.X))
		part := req.Part(lo, hi)
		m, err := d.predictBatch(ctx, j, part, latent)
		if err != nil {
			return nil, err
		}
		if draws != "" && draws != m.DrawsSha256 {
			return nil, status.Error(codes.Aborted, "the job was extended meanwhile: predict again")
		}
		draws = m.DrawsSha256
		rows, _, err := predict.Answered(m, part)
		if err != nil {
			return nil, status.Errorf(codes.Internal, "the answer cannot be read: %v", err)
		}
		out = append(out, rows...)
	}
	return out, nil
}

func (d *Dashboard) predictBatch(ctx context.Context, j *pb.Job, part predict.Request, latent bool) (*pb.PredictResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := predict.Encode(j.Id, part, predict.Options{Latent: latent}, 0)
	r.Inputs = j.Data.Inputs
	if !client.Ended(j.State) {
		r.Kept = int32(client.MinDraws(j.Progress))
	}
	in, err := d.predictions.Predict(ctx, r)
	if err != nil {
		return nil, err
	}
	for {
		m, err := in.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil, status.Error(codes.Internal, "the answer ended without rows")
		case err != nil:
			return nil, err
		case len(m.Rows) > 0:
			return m, nil
		}
	}
}
