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

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/client"
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
	"iso": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
}

// stateWord is a job's state as users know it.
func stateWord(s pb.JobState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "JOB_STATE_"))
}

// stateWords are all states, the first that of number 1.
func stateWords() []string {
	var out []string
	for s := pb.JobState(1); pb.JobState_name[int32(s)] != ""; s++ {
		out = append(out, stateWord(s))
	}
	return out
}

// title names a job.
func title(j *pb.Job) string {
	if j.Name != "" {
		return j.Name
	}
	return j.Id
}

// jobView is a job as pages show it. Words are empty where there is nothing to
// say.
type jobView struct {
	ID, Title, State, Message, StopReason string
	Owner, Namespace                      string
	Done, Wanted                          int // iterations of all chains
	Percent                               int
	Draws, DrawsWanted                    int // of each chain
	RHat, ESS, ESSPerHour, ETA, Active    string
	Judged                                int
	Step, Probes, Budget                  string
	Submitted, Started, Ended             time.Time
	Age                                   string
	Data                                  string
	SHA256                                string
	Chains                                []chainView
	Over                                  bool
	Health                                *healthView
}

// healthView is what is wrong with a job.
type healthView struct {
	Word, Text string
	Since      time.Time
}

// chainView is a chain.
type chainView struct {
	Chain, Warmup, Draws, Done, Wanted int
	Iterations                         string
	Worker                             string
	Group                              string
}

func newJobView(j *pb.Job) jobView {
	p, d := j.GetProgress(), j.GetData()
	v := jobView{ID: j.Id, Title: title(j), State: stateWord(j.State), Message: j.Message, StopReason: strings.ReplaceAll(j.StopReason, "_", " "),
		Owner: j.Owner, Namespace: j.Namespace, Draws: client.MinDraws(p), DrawsWanted: int(p.GetDraws()), Judged: int(p.GetJudgedDraws()),
		RHat: number("%.3f", p.GetRhat()), ESS: number("%.0f", p.GetEss()), ESSPerHour: number("%.0f", client.ESSPerHour(p)),
		Step: number("%.3g", p.GetStep()), Budget: number("%.3g", p.GetNoiseBudget()), Submitted: when(j.Submitted), Started: when(j.Started),
		Ended: when(j.Ended), Age: age(when(j.Submitted)), SHA256: j.DrawsSha256, Over: ended(j.State)}
	if h := j.GetHealth(); h != nil {
		v.Health = &healthView{Word: strings.ToLower(strings.TrimPrefix(h.Status.String(), "HEALTH_STATUS_")), Text: h.Message, Since: when(h.Since)}
	}
	if v.StopReason == v.State {
		v.StopReason = ""
	}
	if p.GetProbes() > 0 {
		v.Probes = fmt.Sprint(p.Probes)
	}
	if s := p.GetActiveSeconds(); s > 0 {
		v.Active = span(time.Duration(s * float64(time.Second)))
	}
	if left, ok := client.ETA(j); ok {
		v.ETA = span(left)
	}
	if d.GetN() > 0 {
		v.Data = fmt.Sprintf("%s rows, %d inputs", grouped(d.N), d.D)
		if d.Target != "" {
			v.Data += ", target " + d.Target
		}
	}
	warm := 0
	if !v.Over && len(p.GetChains()) > 0 {
		warm = client.Warmup(j)
	}
	for _, c := range p.GetChains() {
		x := chainView{Chain: int(c.Chain), Warmup: int(c.Warmup), Draws: int(c.Draws), Worker: c.Worker, Group: strings.Join(c.Group, ", "),
			Iterations: number("%.1f", c.SolverIterations)}
		x.Done, x.Wanted = min(x.Warmup, warm)+min(x.Draws, v.DrawsWanted), warm+v.DrawsWanted
		if v.Over {
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

// number formats a number, or nothing if there is none.
func number(format string, x float64) string {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return ""
	}
	return fmt.Sprintf(format, x)
}

// grouped writes a number in groups of three digits.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// big writes a large number with its unit's prefix.
func big(x float64) string {
	for _, u := range []struct {
		at   float64
		word string
	}{{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if x >= u.at {
			return fmt.Sprintf("%.3g%s", x/u.at, u.word)
		}
	}
	return fmt.Sprintf("%.3g ", x)
}

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
	Draws    int
}

// summaryRow is a quantity; Poor says that its R-hat is above what was asked.
type summaryRow struct {
	Name                                                string
	Mean, SD, Q5, Q50, Q95, MCSE, Bulk, Tail, RHat, Was string
	Poor                                                bool
}

// newSummary reads a summary; nil if there is none.
func newSummary(text []byte, rhat float64, draws int) *summaryView {
	var s report.Summary
	if len(text) == 0 || json.Unmarshal(text, &s) != nil {
		return nil
	}
	v := &summaryView{Draws: draws}
	for _, w := range s.Warnings {
		if !strings.HasPrefix(w, "no draws") {
			v.Warnings = append(v.Warnings, w)
		}
	}
	four := func(x report.Number) string { return value("%.4g", x) }
	for _, p := range s.Parameters {
		r := summaryRow{Name: p.Name, Mean: four(p.Mean), SD: value("%.3g", p.SD), Q5: four(p.Q5), Q50: four(p.Q50), Q95: four(p.Q95),
			MCSE: value("%.2g", p.MCSEMean), Bulk: value("%.0f", p.ESSBulk), Tail: value("%.0f", p.ESSTail), RHat: value("%.3f", p.RHat),
			Poor: rhat > 0 && float64(p.RHat) > rhat}
		if p.Truth != nil {
			r.Was, v.Truth = four(*p.Truth), true
		}
		v.Rows = append(v.Rows, r)
	}
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
		case len(w.Driving)+len(w.Serving) > 0:
			v.State = "at work"
		}
		if r := rate[w.Id]; r > 0 {
			v.Rate, v.Share = big(r)+"pairs/s", fmt.Sprintf("%.0f %%", 100*r/total)
			v.Busy = fmt.Sprintf("%.1f / %d cores", busy[w.Id], v.Cores)
		}
		if l := w.Load; l != nil {
			v.Sent, v.Received = big(float64(l.BytesSent))+"B", big(float64(l.BytesReceived))+"B"
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
