package dashboard

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// jobPlot is a plot of a job.
type jobPlot struct {
	name, title, alt string
	draws            bool // it shows draws, not the course of the computation
	scales           bool // it wants the length-scales of several inputs
	latest           bool // it wants the latest draws, without gaps
	draw             func(io.Writer, sight, ...plots.Option) error
}

// sight is what plots are drawn from.
type sight struct {
	plots.Draws
	truth  []float64
	rhat   float64
	scales []plots.Interval
	course *pb.RunHistory
}

// pairsPlot tells the posterior's modes apart, which the summary has.
const pairsPlot = "pairs"

// jobPlots are the plots of a job, in the order of the page.
var jobPlots = []jobPlot{
	{"scales", "Length-scales by input", report.ScalesText, true, true, false,
		func(w io.Writer, s sight, o ...plots.Option) error { return report.DrawScales(w, s.scales, o...) }},
	{"trace", "Traces", "Each chain's draws in their order, by parameter. Chains that agree overlap, without drift.", true, false, false,
		func(w io.Writer, s sight, o ...plots.Option) error { return plots.Trace(w, s.Draws, o...) }},
	{"density", "Marginal densities", "The posterior density of each parameter, of all chains and of each.", true, false, false,
		func(w io.Writer, s sight, o ...plots.Option) error { return plots.Density(w, s.Draws, s.truth, o...) }},
	{"rank", "Ranks", "Histograms of the ranks of each chain's draws among all. Flat within the band is best.", true, false, false,
		func(w io.Writer, s sight, o ...plots.Option) error { return plots.Rank(w, s.Draws, o...) }},
	{"rhat", "Running R-hat and PSRF", "R-hat and the potential scale reduction factor with its bound against the number of draws. They should fall to 1.", true, false, false,
		func(w io.Writer, s sight, o ...plots.Option) error {
			return plots.RunningRHat(w, s.Draws, s.rhat, o...)
		}},
	{"mean", "Running mean ± 2 sd", "The mean of the draws so far of each chain and of all, with two standard deviations.", true, false, false,
		func(w io.Writer, s sight, o ...plots.Option) error { return plots.RunningMean(w, s.Draws, o...) }},
	{"autocorrelation", "Autocorrelation", "How far draws that lie a lag apart resemble each other, by chain. Near 0 is best.", true, false, true,
		func(w io.Writer, s sight, o ...plots.Option) error { return plots.Autocorrelation(w, s.Draws, o...) }},
	{pairsPlot, "Pairs of parameters", "Draws of every two parameters against each other, with their correlation. Colours are of the modes, if there are several.", true, false, false,
		func(w io.Writer, s sight, o ...plots.Option) error { return plots.Pairs(w, s.Draws, o...) }},
	{"solver", "Solver", "Iterations and residuals of the linear solves and seconds for an iteration, of each chain, against iterations.", false, false, false, solverPlot},
	{"noise", "The gradient's noise", "The gradient noise ratio of each chain, and the noise budget, the smallest eigenvalue of Q, against iterations.", false, false, false, noisePlot},
}

// lines returns a line for each chain.
func lines(h *pb.RunHistory, of func(*pb.ChainCourse) []float64) []plots.Line {
	var out []plots.Line
	for _, c := range h.GetChains() {
		x, y := make([]float64, len(c.Iteration)), of(c)
		for i, it := range c.Iteration {
			x[i] = float64(it)
		}
		if len(y) == len(x) {
			out = append(out, plots.Line{Name: "chain " + strconv.Itoa(int(c.Chain)), X: x, Y: y})
		}
	}
	return out
}

// known replaces the zeros, which stand for what was not measured.
func known(y []float64) []float64 {
	out := make([]float64, len(y))
	for i, v := range y {
		if out[i] = v; v == 0 {
			out[i] = math.NaN()
		}
	}
	return out
}

// steps makes the settings of windows a line that is level within each.
func steps(h *pb.RunHistory, of func(*pb.TunedWindow) float64) []plots.Line {
	last := 0.0
	for _, c := range h.GetChains() {
		if n := len(c.Iteration); n > 0 {
			last = max(last, float64(c.Iteration[n-1]))
		}
	}
	var l plots.Line
	for i, w := range h.GetWindows() {
		end := last
		if i+1 < len(h.Windows) {
			end = float64(h.Windows[i+1].Iteration)
		}
		l.X = append(l.X, float64(w.Iteration), max(end, float64(w.Iteration)))
		l.Y = append(l.Y, of(w), of(w))
	}
	return []plots.Line{l}
}

func noisePlot(w io.Writer, s sight, o ...plots.Option) error {
	return plots.Course(w, "The gradient's noise",
		"The noise of the gradient relative to the step, and the noise budget λ_min(Q), which must not fall below 0.",
		[]plots.Panel{
			{X: "iteration", Y: "noise ratio", Zero: true, Lines: lines(s.course, func(c *pb.ChainCourse) []float64 { return known(c.NoiseRatio) })},
			{X: "iteration", Y: "λ_min(Q) / C", Zero: true, Lines: steps(s.course, func(w *pb.TunedWindow) float64 { return w.NoiseBudget })},
		}, o...)
}

func solverPlot(w io.Writer, s sight, o ...plots.Option) error {
	residual := plots.Panel{X: "iteration", Y: "relative residual", Log: true, Lines: lines(s.course, func(c *pb.ChainCourse) []float64 { return c.Residual })}
	if t := s.course.GetTolerance(); t > 0 {
		residual.Level, residual.LevelName = t, "tolerance"
	}
	return plots.Course(w, "Solver", "What the linear solves of a gradient took, and how well they were solved.",
		[]plots.Panel{
			{X: "iteration", Y: "CG iterations", Zero: true, Lines: lines(s.course, func(c *pb.ChainCourse) []float64 { return known(c.SolverIterations) })},
			residual,
			{X: "iteration", Y: "time / s", Zero: true, Lines: lines(s.course, func(c *pb.ChainCourse) []float64 { return c.Seconds })},
		}, o...)
}

// plot serves a plot of a job.
func (d *Dashboard) plot(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutSuffix(r.PathValue("plot"), ".svg")
	var p *jobPlot
	for i := range jobPlots {
		if jobPlots[i].name == name {
			p = &jobPlots[i]
		}
	}
	if p == nil || !ok {
		d.fail(w, r, errNoPage)
		return
	}
	f, j, _, err := d.open(r.Context(), r.PathValue("id"))
	if err != nil {
		http.Error(w, plain(err), httpStatus(err))
		return
	}
	defer d.feeds.close(f)
	f.arrive(r.Context(), j)
	shown := paramsOf(r)
	version := fmt.Sprintf("%d/%d ", f.restarts(), f.version(time.Now()))
	var h *pb.RunHistory
	var scales []plots.Interval
	var modes []report.Mode
	if p.scales || p.name == pairsPlot { // the summary comes later than the draws
		if sum := newSummary(f.summary(j, f.version(time.Now())), 0); sum != nil {
			scales, modes = sum.Scales, sum.Modes
		}
		version += fmt.Sprint(scales, len(modes))
	}
	if !p.draws {
		h = f.course(j)
		version = strconv.Itoa(marks(h))
	}
	d.picture(w, r, "job/"+j.Id+"/"+name+"/"+shown.String(), version, func(w io.Writer, o ...plots.Option) error {
		began := time.Now()
		defer func() { f.took(time.Since(began)) }()
		s := sight{course: h, scales: scales}
		if p.draws {
			s.Draws, s.truth, s.rhat = f.picture(p.latest, shown, modes)
		}
		return p.draw(w, s, o...)
	})
}

// marks counts what a course has, as its version.
func marks(h *pb.RunHistory) int {
	n := 0
	for _, c := range h.GetChains() {
		if k := len(c.Iteration); k > 0 {
			n += int(c.Iteration[k-1])
		}
	}
	return n
}
