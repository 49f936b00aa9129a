package dashboard

import (
	"math"
	"regexp"
	"strings"
	"testing"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/report"
)

// bars returns what the bars of a page say: value of max.
func bars(text string) (out []string) {
	for _, m := range regexp.MustCompile(`<progress max="(\d+)" value="(\d+)"`).FindAllStringSubmatch(text, -1) {
		out = append(out, m[2]+"/"+m[1])
	}
	return out
}

// A job that ended with nothing has empty bars and says so, in words that fit; one that has converged has
// full ones, whatever the number of its draws.
func TestTrueStates(t *testing.T) {
	s := newSite(t, Config{})
	s.add("j2", "failed", pb.JobState_JOB_STATE_FAILED, 2, 0)
	s.change("j2", func(j *pb.Job) {
		j.Message = "chain 4 diverged at iteration 53: use a smaller sampler.step"
		j.Progress.Rhat, j.Progress.Ess, j.Progress.ActiveSeconds = 0, 0, 6
		for _, c := range j.Progress.Chains {
			c.Warmup = 0
		}
	}, 0)
	s.sums = map[string]report.Summary{"j2": {Provisional: &report.Provisional{Note: "the normal approximation at the mode", Parameters: []report.ProvisionalRow{{Name: "tau[hr]", Mean: 0.25}}}}}
	text := s.want("/jobs/j2", 200, "There is nothing to plot: the job ended before its first draws", "the normal approximation at the mode", "tau[hr]", "0.25",
		"repeat the job with that change", "chain 4 diverged at iteration 53")
	if got := strings.Join(bars(text), " "); got != "0/450 0/450" {
		t.Errorf("bars %s", got)
	}
	for _, no := range []string{"There is no summary yet", "Plots appear", "Time left"} {
		if strings.Contains(text, no) {
			t.Errorf("a job that has failed says %q", no)
		}
	}
	if list := s.want("/jobs?q=failed", 200, "chain 4 diverged"); strings.Join(bars(list), "") != "0/900" || strings.Contains(list, "ESS/h</th><td class=\"n wide\">1") {
		t.Errorf("bars %v", bars(list))
	}
	s.add("j3", "early", pb.JobState_JOB_STATE_CONVERGED, 2, 100)
	s.change("j3", func(j *pb.Job) { j.Progress.Rhat, j.Progress.Ess = 1.004, 900 }, 0)
	text = s.want("/jobs/j3", 200, "100/400")
	if got := strings.Join(bars(text), " "); got != "450/450 450/450" {
		t.Errorf("bars %s", got)
	}
}

// Numbers stand beside what they have to be, and are marked by whether they are.
func TestGauges(t *testing.T) {
	s := newSite(t, Config{})
	text := s.want("/jobs/j1", 200, `<div class="poor"><dt>R-hat</dt><dd>1.012 <small>1.01 at most</small>`, `<div class="poor"><dt>ESS</dt><dd>321 <small>400 at least</small>`, `<div class="poor"><dt>Error</dt><dd>0.061 <small>0.05 at most</small>`,
		"200/400", "What the numbers mean", "Noise budget 0.4")
	if strings.Contains(text, "Probes</dt><dd>4") {
		t.Error("settings of the sampler stand among what people look for")
	}
	s.change("j1", func(j *pb.Job) { j.Progress.Rhat, j.Progress.Ess, j.Progress.ActiveSeconds = 1.002, 4000, 6 }, 0)
	text = s.want("/jobs/j1", 200, `<div class="good"><dt>R-hat</dt><dd>1.002`, `<div class="good"><dt>ESS</dt><dd>4000`, "<dt>ESS/h</dt><dd>—")
	if strings.Contains(text, "2400000") {
		t.Error("ESS an hour of a job of six seconds")
	}
	s.want("/jobs", 200, `<td class="n good" title="1.01 at most">1.002</td>`)
}

// Files are at hand once there is something in them, and parameters can be chosen.
func TestFilesAndChoices(t *testing.T) {
	s := newSite(t, Config{})
	s.want("/jobs/j1", 200, `href="/v1/jobs/j1/export?format=parquet"`, `href="/v1/jobs/j1/export?format=html"`, `href="/jobs/j1/spec.yaml"`,
		`name="param" value="2" checked`)
	if text := s.want("/jobs/j1/spec.yaml", 200, "kernel: rbf"); text != fakeSpec {
		t.Errorf("the specification came as %q", text)
	}
	s.add("j2", "empty", pb.JobState_JOB_STATE_QUEUED, 2, 0)
	if text := s.want("/jobs/j2", 200, `href="/jobs/j2/spec.yaml"`); strings.Contains(text, "export?") {
		t.Error("draws of a job that has none")
	}
	text := s.want("/jobs/j1?param=2&param=0&param=x&param=99", 200, "/jobs/j1/plots/trace.svg?param=0&amp;param=2&amp;param=99")
	if strings.Contains(text, `value="1" checked`) || !strings.Contains(text, `value="0" checked`) {
		t.Error("the choice is not kept")
	}
	if svg := s.want("/jobs/j1/plots/trace.svg?param=2", 200, "log lambda"); strings.Contains(svg, "log tau") {
		t.Error("a parameter that was not chosen is plotted")
	}
}

// Length-scales of several inputs have a picture of their own, of one none.
func TestScalesOnThePage(t *testing.T) {
	s := newSite(t, Config{})
	if text := s.want("/jobs/j1", 200, "trace.svg"); strings.Contains(text, "scales.svg") {
		t.Error("there are no length-scales of inputs")
	}
	s.add("j2", "ard", pb.JobState_JOB_STATE_CONVERGED, 2, 400)
	s.sums = map[string]report.Summary{"j2": {Parameters: []report.Parameter{{Name: "lengthscale_std[hr]", Q5: 0.1, Q50: 0.2, Q95: 0.4, Detail: true}, {Name: "lengthscale_std[temp]", Q5: 3, Q50: 5, Q95: 40, Detail: true}}}}
	s.want("/jobs/j2", 200, "scales.svg", "Length-scales by input")
	s.want("/jobs/j2/plots/scales.svg", 200, "hr", "temp", "median")
}

// Modes have a table, if there are several, which says of images what they are.
func TestModesOnThePage(t *testing.T) {
	s := newSite(t, Config{})
	s.add("j2", "two", pb.JobState_JOB_STATE_CONVERGED, 2, 400)
	s.sums = map[string]report.Summary{"j2": {Parameters: []report.Parameter{{Name: "sigma", Mean: 3, SD: 0.4}},
		Modes: []report.Mode{{Mass: 0.75, MassError: 0.01, Found: 7, At: []float64{1, -2}}, {Mass: 0.25, MassError: 0.01, Below: 1.5, Found: 0, At: []float64{-2, 1}, Differs: "u.tau", Distance: 3.25}}}}
	text := s.want("/jobs/j2", 200, "<h3>Modes</h3>", "The posterior has 2 modes", "mirror images of others", ">Mass</th>", ">mode 1</th>", ">0.750</td>", ">mode 2</th>", ">u.tau</td>", ">3.2</td>", ">-2.00 1.00</td>")
	if strings.Count(text, ">mode ") != 2 {
		t.Errorf("the table is not of two modes:\n%s", text)
	}
	if text := s.want("/jobs/j1", 200, "sigma"); strings.Contains(text, "Modes") {
		t.Error("a posterior of one mode has a table of modes")
	}
}

// Two jobs stand side by side, with what differs.
func TestComparePage(t *testing.T) {
	s := newSite(t, Config{})
	s.add("j2", "second", pb.JobState_JOB_STATE_CONVERGED, 2, 400)
	s.change("j2", func(j *pb.Job) { j.Spec = strings.Replace(j.Spec, "rbf", "matern32", 1) }, 0)
	s.sums = map[string]report.Summary{"j2": {Parameters: []report.Parameter{{Name: "sigma", Mean: 3, SD: 0.4}, {Name: "tau", Mean: 1, SD: 0.1}}}}
	s.want("/jobs/j1", 200, `<option value="j2">second (j2, converged)</option>`)
	// (3 − 1.5)/√((0.09+0.16)/2) = 4.24
	text := s.want("/compare?job=j1&job=j2", 200, "first", "second", "1.5 ± 0.3", "3 ± 0.4", `poor">&#43;4.24`, `<td class="n">—</td><td class="n">1 ± 0.1</td>`, "Only first has", "kernel: rbf", "kernel: matern32", "ulisse compare j1 j2")
	if math.Abs(1.5/math.Sqrt(0.125)-4.24) > 0.01 || strings.Contains(text, "sampler: {chains: 2") {
		t.Errorf("lines that both have are told as different:\n%s", text)
	}
	s.want("/compare?job=j1&job=j1", 200, "They are the same.")
	s.want("/compare?job=j1", 400, "Two jobs can be compared")
	s.want("/compare?job=j1&job=none", 404, "There is no job")
}

// The coefficients of a mean are rows of the summary's table; without them it is said where they are.
func TestCoefficientsInTheSummary(t *testing.T) {
	v := newSummary([]byte(`{"parameters":[{"name":"sigma","mean":1}],"coefficients":{"draws":100,"of":[{"name":"slope[a]","mean":-2.5,"mcse_mean":0.01,"sd":0.5,"q5":-3,"q50":-2.5,"q95":-2}]}}`), 1.01)
	if n := len(v.Rows); n != 2 || v.Rows[1].Name != "slope[a]" || v.Rows[1].Mean != "−2.5" || v.Rows[1].MCSE != "0.01" || v.Rows[1].RHat != "—" || v.Rows[1].Poor {
		t.Errorf("rows %+v", v.Rows)
	}
	if v := newSummary([]byte(`{"parameters":[{"name":"sigma","mean":1}],"notes":["they follow"]}`), 1.01); v.Note != "they follow" {
		t.Errorf("note %q", v.Note)
	}
}
