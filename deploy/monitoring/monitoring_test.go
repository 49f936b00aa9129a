// Package monitoring holds what Prometheus and Grafana need to watch a cluster:
// alerts and a dashboard. This test keeps them true.
package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// expression is a query, and where it stands.
type expression struct{ at, text string }

// alerts returns the names of the alerts and their expressions.
func alerts(t *testing.T) (names []string, out []expression) {
	t.Helper()
	text, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
			out = append(out, expression{r.Alert, r.Expr})
		}
	}
	if len(names) == 0 {
		t.Fatal("no alerts")
	}
	return names, out
}

// panels returns the expressions of the dashboard as Grafana sends them.
func panels(t *testing.T) (out []expression) {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  struct{ X, Y, W, H int }
			Targets                  []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("%s: the id %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies over %s, or beyond the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
			t.Errorf("%s shows nothing, or does not say what", p.Title)
		}
		for _, q := range p.Targets {
			for from, to := range map[string]string{"$__rate_interval": "5m", "$name": ".*"} {
				q.Expr = strings.ReplaceAll(q.Expr, from, to)
			}
			if strings.Contains(q.Expr, "$") || q.LegendFormat == "" {
				t.Errorf("%s: %s: an unknown variable, or no legend", p.Title, q.Expr)
			}
			out = append(out, expression{p.Title, q.Expr})
		}
	}
	return out
}

var (
	nameForm = regexp.MustCompile(`\bulisse_[a-z0-9_]+`)
	rowForm  = regexp.MustCompile("(?m)^\\| `(ulisse_[a-z0-9_]+)` \\| ([a-z]+) \\|")
	kindForm = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// Every metric that an alert or the dashboard asks for is exported: the page of
// metrics is what the registries say. Every metric of a job or of the solver is
// looked at somewhere.
func TestMetricsExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{"ulisse_build_info": "gauge", "ulisse_clock_timestamp_seconds": "gauge"}
	for _, m := range rowForm.FindAllStringSubmatch(string(page), -1) {
		kinds[m[1]] = m[2]
	}
	_, all := alerts(t)
	used := map[string]bool{}
	for _, e := range append(all, panels(t)...) {
		for _, name := range nameForm.FindAllString(e.text, -1) {
			base := name
			if kinds[name] == "" && kinds[kindForm.ReplaceAllString(name, "")] == "histogram" {
				base = kindForm.ReplaceAllString(name, "")
			}
			if kinds[base] == "" || kinds[base] == "histogram" && base == name {
				t.Errorf("%s: %s is not exported", e.at, name)
			}
			if kinds[base] == "counter" && !regexp.MustCompile(`(rate|increase)\(`+name).MatchString(e.text) {
				t.Errorf("%s: %s is a counter: ask for its rate", e.at, name)
			}
			used[base] = true
		}
	}
	for _, name := range []string{"ulisse_jobs", "ulisse_job_rhat", "ulisse_job_ess", "ulisse_solver_iterations", "ulisse_tile_retries_total", "ulisse_raft_term"} {
		if !used[name] {
			t.Errorf("nothing looks at %s", name)
		}
	}
}

// Every alert says in the handbook what to do.
func TestAlertsAreExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	names, _ := alerts(t)
	for _, n := range names {
		if !strings.Contains(string(page), "| `"+n+"` |") {
			t.Errorf("docs/operations.md does not explain %s", n)
		}
	}
}

// Prometheus's own tool takes the rules, the alerts fire and keep still as their
// tests say, each in one at least, and every query of the dashboard parses.
func TestPromtool(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: Debian's package prometheus has it")
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("check", "rules", "alerts.yaml")
	run("test", "rules", "alerts_test.yaml")
	tests, err := os.ReadFile("alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names, _ := alerts(t)
	for _, n := range names {
		if !regexp.MustCompile(`- alertname: ` + n + "\n").Match(tests) {
			t.Errorf("no test sees %s fire", n)
		}
	}
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	for i, e := range panels(t) {
		rules = append(rules, rule{fmt.Sprintf("panel_%d", i), e.text})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	run("check", "rules", path)
}
