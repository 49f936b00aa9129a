package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/ulisse-gp/ulisse/internal/client"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// screen redraws a block of lines at the bottom of a terminal.
type screen struct {
	w     io.Writer
	drawn int // lines
}

func (s *screen) draw(lines []string) {
	width, height := s.size()
	if len(lines) >= height { // what has left the screen cannot be redrawn
		lines = append(lines[:height-2:height-2], "…")
	}
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	for _, l := range lines {
		b.WriteString("\r\x1b[K" + crop(l, width-1) + "\n")
	}
	b.WriteString("\x1b[J")
	io.WriteString(s.w, b.String())
	s.drawn = len(lines)
}

func (s *screen) size() (width, height int) {
	if f, ok := s.w.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 20 && h > 4 {
			return w, h
		}
	}
	return 100, 1000
}

// crop cuts a line, which would wrap otherwise.
func crop(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

// jobLines is the live view of a job.
func jobLines(j *pb.Job, workers *shares) []string {
	p := j.GetProgress()
	head := fmt.Sprintf("%s  %s  %s", j.Name, j.Id, client.StateWord(j.State))
	if p.GetActiveSeconds() > 0 {
		head += "  " + span(p.ActiveSeconds)
	}
	if left, ok := client.ETA(j); ok {
		head += fmt.Sprintf("  ETA %s", left.Round(time.Second))
	}
	lines := []string{head}
	if j.Message != "" {
		lines = append(lines, j.Message)
	}
	if w := client.HealthWord(j); w != "" {
		lines = append(lines, w+": "+j.Health.Message)
	}
	if p == nil {
		return lines
	}
	lines = append(lines, convergence(j))
	for _, c := range p.Chains {
		n, of, what := int(c.Draws), int(p.Draws), "draws"
		switch {
		case n == 0:
			n, of, what = int(c.Warmup), int(p.Warmup), "warm-up"
		case n > of:
			of = int(p.MaxDraws)
		}
		line := fmt.Sprintf("chain %-2d %s %4d/%d %-7s", c.Chain, bar(n, of, 24), n, of, what)
		if c.SolverIterations > 0 {
			line += fmt.Sprintf("  %.0f its", c.SolverIterations)
		}
		if c.Worker != "" {
			line += "  on " + c.Worker
		}
		if others := slices.DeleteFunc(slices.Clone(c.Group), func(w string) bool { return w == c.Worker }); len(others) > 0 {
			line += " with " + strings.Join(others, ", ")
		}
		lines = append(lines, line)
	}
	return append(lines, workers.lines(j)...)
}

// convergence is the line on all chains together.
func convergence(j *pb.Job) string {
	p := j.GetProgress()
	if p.Rhat == 0 {
		return "no diagnostics yet"
	}
	s := fmt.Sprintf("R-hat %.3f of %g  ESS %.0f of %g", p.Rhat, p.RhatWanted, p.Ess, p.EssWanted)
	if p.LargestError != 0 {
		s += fmt.Sprintf("  error %.3f", p.LargestError)
	}
	if p.ErrorWanted != 0 {
		s += fmt.Sprintf(" of %g", p.ErrorWanted)
	}
	s += fmt.Sprintf("  ESS/h %.0f  at %d draws", client.ESSPerHour(p), p.JudgedDraws)
	if p.Step > 0 {
		s += fmt.Sprintf("  step %.2f  %d probes", p.Step, p.Probes)
	}
	return s
}

// bar draws how much of a whole is done.
func bar(n, of, width int) string {
	full := 0
	if of > 0 {
		full = min(width, width*n/of)
	}
	return "[" + strings.Repeat("=", full) + strings.Repeat(" ", width-full) + "]"
}

// shares are the workers and what they have computed since the first look.
type shares struct {
	workers []*pb.Worker
	first   map[string]float64 // pairs at the first look at a worker
}

func (s *shares) see(workers []*pb.Worker) {
	if s.first == nil {
		s.first = map[string]float64{}
	}
	for _, w := range workers {
		if pairs, seen := s.first[w.Id]; !seen || w.GetLoad().GetPairs() < pairs { // new, or restarted
			s.first[w.Id] = w.GetLoad().GetPairs()
		}
	}
	s.workers = workers
}

// lines tells of the workers that are at a job, with their shares of what those
// have computed since the first look, or before there is anything of their speed.
func (s *shares) lines(j *pb.Job) []string {
	at := map[string]bool{}
	for _, c := range j.GetProgress().GetChains() {
		at[c.Worker] = true
		for _, w := range c.Group {
			at[w] = true
		}
	}
	var mine []*pb.Worker
	var done, speed float64
	for _, w := range s.workers {
		if at[w.Id] {
			mine = append(mine, w)
			done += w.GetLoad().GetPairs() - s.first[w.Id]
			speed += w.GetCapacity().GetPairsPerSecond()
		}
	}
	var lines []string
	for _, w := range mine {
		share, what := w.GetCapacity().GetPairsPerSecond()/speed, "of the speed"
		if done > 0 {
			share, what = (w.GetLoad().GetPairs()-s.first[w.Id])/done, "of the work"
		}
		line := fmt.Sprintf("worker %s", w.Id)
		if done > 0 || speed > 0 {
			line += fmt.Sprintf("  %3.0f %% %s", 100*share, what)
		}
		line += fmt.Sprintf("  %d cores %s", w.GetCapacity().GetCores(), w.GetCapacity().GetInstructionSet())
		if state := workerState(w); state != "ready" {
			line += "  " + state
		}
		lines = append(lines, line)
	}
	return lines
}
