package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/plots"
	"github.com/ulisse-gp/ulisse/internal/plural"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// functions are what templates can call.
var functions = template.FuncMap{
	"lower": strings.ToLower,
	"moment": func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format("2006-01-02 15:04:05 UTC")
	},
	"iso":    func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"age":    age,
	"inc":    func(i int) int { return i + 1 },
	"number": number,
	"span":   seconds,
	"gauge": func(list []gauge, name string) *gauge {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
		return nil
	},
}

// title names a job.
func title(j *pb.Job) string { return cmp.Or(j.Name, j.Id) }

// jobView is a job as pages show it.
type jobView struct {
	client.JobView
	Title   string
	Reason  string // why it has ended; empty if its state says as much
	Active  *float64
	Rows    string // of its data, and columns
	DrawsOf string // draws of each chain, of how many
	Over    bool   // it has ended
	Gauges  []gauge
	Done    int // iterations of all chains
	Wanted  int
	Percent int
	Chains  []chainView
}

// chainView is a chain.
type chainView struct {
	client.ChainView
	Done, Wanted int // iterations
	With         string
}

func newJobView(j *pb.Job) jobView {
	p, d := j.GetProgress(), j.GetData()
	v := jobView{JobView: client.NewJobView(j), Title: title(j), Reason: strings.ReplaceAll(j.StopReason, "_", " ")}
	if v.Reason == v.State {
		v.Reason = ""
	}
	if v.Seconds > 0 {
		v.Active = &v.Seconds
	}
	if d.GetN() > 0 {
		v.Rows = humanize.Comma(d.N) + " rows, " + plural.Of(int(d.D), "input")
		if d.Target != "" {
			v.Rows += ", target " + d.Target
		}
	}
	v.DrawsOf, v.Over = client.DrawsText(j), client.Ended(j.State)
	if v.Seconds < shortWork { // nothing can be told of an hour from so little
		v.ESSPerHour = nil
	}
	v.Gauges = gaugesOf(&v, p)
	warmup, done := int(p.GetWarmup()), j.State == pb.JobState_JOB_STATE_CONVERGED
	for _, c := range v.JobView.Chains {
		x := chainView{ChainView: c, With: strings.Join(c.Group, ", "), Wanted: warmup + int(v.DrawsWanted)}
		x.Done = min(int(c.Warmup), warmup) + min(int(c.Draws), int(v.DrawsWanted))
		if done { // it may have come to its end with fewer
			x.Done = x.Wanted
		}
		v.Done, v.Wanted = v.Done+x.Done, v.Wanted+x.Wanted
		v.Chains = append(v.Chains, x)
	}
	if v.Wanted > 0 {
		v.Percent = 100 * v.Done / v.Wanted
	}
	return v
}

// shortWork is the time at work, in seconds, from which on speeds are told.
const shortWork = 60

// gauge is a number that people look for, beside what it has to be. Class is good or poor, or empty if
// nothing is judged yet.
type gauge struct {
	Name, Value, Wanted, Class string
}

func gaugesOf(v *jobView, p *pb.Progress) []gauge {
	judge := func(known *float64, good func(x float64) bool) string {
		switch {
		case known == nil:
			return ""
		case good(*known):
			return "good"
		}
		return "poor"
	}
	wanted := func(format string, x float64) string {
		if x <= 0 {
			return ""
		}
		return fmt.Sprintf(format, x)
	}
	rhat, ess, most := p.GetRhatWanted(), p.GetEssWanted(), p.GetErrorWanted()
	g := []gauge{
		{"R-hat", number("%.3f", v.RHat), wanted("%.4g at most", rhat), judge(v.RHat, func(x float64) bool { return rhat == 0 || x <= rhat })},
		{"ESS", number("%.0f", v.ESS), wanted("%.4g at least", ess), judge(v.ESS, func(x float64) bool { return x >= ess })},
		{"Error", number("%.2g", v.Error), wanted("%.4g at most", most), judge(v.Error, func(x float64) bool { return most == 0 || x <= most })},
		{"Draws of each chain", v.DrawsOf, "", ""},
		{"At work for", seconds(v.Active), "", ""},
	}
	if !v.Over {
		g = append(g, gauge{"Time left", seconds(v.ETASeconds), "", ""})
	}
	return append(g, gauge{"ESS/h", number("%.0f", v.ESSPerHour), "", ""})
}

// seconds writes a length of time, nothing if it is not known.
func seconds(s *float64) string {
	if s == nil {
		return ""
	}
	return span(time.Duration(*s * float64(time.Second)))
}

// number formats a number, a float64 or a pointer to one, or nothing if there is
// none.
func number(format string, number any) string {
	x, _ := number.(float64)
	if p, ok := number.(*float64); ok && p != nil {
		x = *p
	}
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return ""
	}
	return fmt.Sprintf(format, x)
}

// quantity writes a large number of a unit, with a prefix.
func quantity(x float64, unit string) string { return humanize.SIWithDigits(x, 1, unit) }

func when(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// age tells how long ago a moment was.
func age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := time.Since(t)
	if d < time.Second {
		return "now"
	}
	return span(d)
}

// span writes a length of time in its largest units.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

// summaryView is the table of a job's parameters.
type summaryView struct {
	Rows     []summaryRow
	Warnings []string
	Truth    bool // the data were generated
	Note     string
	Scales   []plots.Interval // the length-scales of the inputs, if each has its own
	Modes    []report.Mode    // if there are several
}

// ModeColumns head the table of modes.
func (*summaryView) ModeColumns() []string { return report.ModeColumns }

// ModesNote is what to know of the modes.
func (v *summaryView) ModesNote() string { return report.ModesNote(v.Modes) }

// summaryRow is a quantity; Poor says that its R-hat is above what was asked.
type summaryRow struct {
	Name                                                string
	Mean, SD, Q5, Q50, Q95, MCSE, Bulk, Tail, RHat, Was string
	Poor                                                bool
}

// newSummary reads a summary; nil if there is none. Before there are draws it is what is known without
// them.
func newSummary(text []byte, rhat float64) *summaryView {
	var s report.Summary
	if len(text) == 0 || json.Unmarshal(text, &s) != nil {
		return nil
	}
	v := &summaryView{}
	for _, w := range s.Warnings {
		if !strings.HasPrefix(w, "no draws") {
			v.Warnings = append(v.Warnings, w)
		}
	}
	four := func(x report.Number) string { return value("%.4g", x) }
	if s.Provisional != nil {
		v.Note = s.Provisional.Note
		for _, p := range s.Provisional.Parameters {
			if !p.Detail {
				v.Rows = append(v.Rows, summaryRow{Name: p.Name, Mean: four(p.Mean), SD: value("%.3g", p.SD), Q5: four(p.Q5), Q50: four(p.Q50), Q95: four(p.Q95),
					MCSE: "—", Bulk: "—", Tail: "—", RHat: "—"})
			}
		}
		return v
	}
	v.Scales, v.Modes = s.Scales(), s.Modes
	for _, p := range s.Parameters {
		if p.Detail {
			continue
		}
		r := summaryRow{Name: p.Name, Mean: four(p.Mean), SD: value("%.3g", p.SD), Q5: four(p.Q5), Q50: four(p.Q50), Q95: four(p.Q95),
			MCSE: value("%.2g", p.MCSEMean), Bulk: value("%.0f", p.ESSBulk), Tail: value("%.0f", p.ESSTail), RHat: value("%.3f", p.RHat),
			Poor: rhat > 0 && float64(p.RHat) > rhat}
		if p.Truth != nil {
			r.Was, v.Truth = four(*p.Truth), true
		}
		v.Rows = append(v.Rows, r)
	}
	if k := s.Coefficients; k != nil {
		for _, c := range k.Of {
			v.Rows = append(v.Rows, summaryRow{Name: c.Name, Mean: four(c.Mean), SD: value("%.3g", c.SD), Q5: four(c.Q5), Q50: four(c.Q50), Q95: four(c.Q95),
				MCSE: value("%.2g", c.MCSEMean), Bulk: "—", Tail: "—", RHat: "—"})
		}
	}
	v.Note = strings.Join(s.Notes, ". ")
	return v
}

// value formats a number of a table; — stands for one that is not defined.
func value(format string, x report.Number) string {
	if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
		return "—"
	}
	return strings.Replace(fmt.Sprintf(format, float64(x)), "-", "−", 1)
}

// logLine is a line of a job's log. Those of gradients are JSON, said shortly.
type logLine struct {
	Time   time.Time
	Chain  int
	Worker string
	Text   string
}

func newLogLine(l *pb.LogLine) logLine {
	v := logLine{Time: when(l.Time), Chain: int(l.Chain), Worker: l.Worker, Text: l.Text}
	var fields map[string]any
	if json.Unmarshal([]byte(l.Text), &fields) != nil {
		return v
	}
	var b strings.Builder
	fmt.Fprint(&b, fields["msg"])
	for _, k := range []string{"iter", "rows", "solver_iterations", "residual", "noise_ratio", "noise_budget", "acceptance", "seconds", "unconverged", "error", "count"} {
		switch x := fields[k].(type) {
		case float64:
			fmt.Fprintf(&b, " %s=%.4g", k, x)
		case string:
			fmt.Fprintf(&b, " %s=%s", k, x)
		}
	}
	v.Text = b.String()
	return v
}

// workerView is a worker.
type workerView struct {
	ID, Address, ISA, Version, State  string
	Cores                             int
	Rate, Share, Busy, Sent, Received string
	Retries                           int64
	Joined                            time.Time
	Seen                              string
	Driving, Serving                  []placeView
}

// placeView is a chain of a job.
type placeView struct {
	Job   string
	Chain int
}

// newWorkers returns the workers with what they did lately.
func newWorkers(workers []*pb.Worker, h *pb.WorkersHistory) []workerView {
	rate, busy := map[string]float64{}, map[string]float64{}
	total := 0.0
	for _, c := range h.GetWorkers() {
		if n := len(c.PairsPerSecond); n > 0 && time.Since(when(c.Time[n-1])) < 2*time.Minute {
			rate[c.Worker], busy[c.Worker] = c.PairsPerSecond[n-1], c.Busy[n-1]
			total += rate[c.Worker]
		}
	}
	var out []workerView
	for _, w := range workers {
		v := workerView{ID: w.Id, Address: w.Address, ISA: w.GetCapacity().GetInstructionSet(), Version: w.Version, Cores: int(w.GetCapacity().GetCores()),
			Retries: w.GetLoad().GetTileRetries(), Joined: when(w.Joined), Seen: age(when(w.LastSeen)), State: "ready"}
		switch {
		case !w.Connected:
			v.State = "lost"
		case w.Draining:
			v.State = "draining"
		case w.Aside:
			v.State = "aside"
		case len(w.Driving)+len(w.Serving) > 0:
			v.State = "at work"
		}
		if r := rate[w.Id]; r > 0 {
			v.Rate, v.Share = quantity(r, "pairs/s"), fmt.Sprintf("%.0f %%", 100*r/total)
			v.Busy = fmt.Sprintf("%.1f / %d cores", busy[w.Id], v.Cores)
		}
		if l := w.Load; l != nil {
			v.Sent, v.Received = quantity(float64(l.BytesSent), "B"), quantity(float64(l.BytesReceived), "B")
		}
		for _, p := range w.Driving {
			v.Driving = append(v.Driving, placeView{p.Job, int(p.Chain)})
		}
		for _, p := range w.Serving {
			v.Serving = append(v.Serving, placeView{p.Job, int(p.Chain)})
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b workerView) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
