package cli

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// What a specification says of tables, noise, mean and targets is the same on a cluster as it is here: its
// draws, and its predictions of rows with levels, dates and gaps.
func TestModelsOnACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("runs on a cluster: not in short tests")
	}
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("day,station,x,sd,n,y\n")
	for i := range 70 {
		gap := fmt.Sprint(math.Sin(1.3 * float64(i)))
		if i%9 == 4 {
			gap = ""
		}
		fmt.Fprintf(&b, "2024-%02d-%02d,%s,%s,%g,%d,%g\n", 1+i/28, 1+i%28, []string{"north", "south", "west"}[i*i%3], gap, 0.1+0.05*float64(i%4), 1+i%5,
			2+0.02*float64(i)+math.Abs(math.Sin(float64(i)/5))+0.2*math.Cos(37*float64(i)))
	}
	table := write(t, dir, "table.csv", b.String())
	const head = `
name: %s
data: {path: %s, target: y, %s}
model: {%s}
sampler: {%s chains: 2, warmup: 10, draws: 20, checkpoint: 10}
stop: {rhat: 10, ess: 1}
`
	c := newLiveCluster(t, "w1", "w2")
	for name, s := range map[string]struct{ data, model, sampler, more string }{
		"noise": {`inputs: [day, station, x], categories: [station], dates: {day: days}, missing: impute-median, weights: n`,
			`kernel: "rbf(day) * hamming(station) + rbf(x)", mean: linear(day), noise: {column: sd, by: station}, priors: {lengthscale: "lognormal(1,1)"}`, "method: exact,", ""},
		"transform": {`inputs: [day, station], categories: [station], dates: {day: "days %Y-%m-%d"}, transform: log`, `kernel: "rq(day) + hamming(station)"`, "", ""},
		"gate":      {`inputs: [day, x], dates: {day: weeks}, missing: impute-median`, `likelihood: twinned, kernel: matern32, noise: {gate: "rbf(day)"}, priors: {outlier_share: "beta(1,9)"}`, "", ""},
		"outliers":  {`inputs: [day, x], dates: {day: weeks}, missing: impute-median`, `likelihood: student-t, kernel: matern32`, "", ""},
		"outputs": {`inputs: [day, station], categories: [station], dates: {day: days}`,
			`kernel: "f: coregion(station) * rbf(day) + hamming(station)", noise: {by: station}, priors: {f.coregion.correlation: "lkj(1)"}`, "", "--terms"},
		"change": {`inputs: [day, station], categories: [station], dates: {day: weeks}`,
			`kernel: "sigmoid(day, at=2820, width=1) * rbf(day) + wendland(day) * hamming(station) + linear(day)", mean: constant`, "method: exact,", "--terms"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := write(t, dir, name+".yaml", fmt.Sprintf(head, name, table, s.data, s.model, s.sampler))
			here, there := filepath.Join(dir, name), filepath.Join(dir, name+"-there")
			good(t, "run", spec, "--out", here, "-q")
			if code, _, stderr := ulisse(t, "", "submit", spec, "--coordinators", c.address, "--wait", "--out", there); code != ExitConverged {
				t.Fatal(code, stderr)
			}
			if summaryHash(t, here) != summaryHash(t, there) {
				t.Error("the cluster's draws are others")
			}
			predict := func(args ...string) string {
				if s.more != "" {
					args = append(args, s.more)
				}
				return good(t, append(args, "--data", table, "-q", "--draws", "4")...)
			}
			local, remote := predict("predict", here), predict("predict", name, "--coordinators", c.address)
			if strings.Count(local, "\n") < 60 || local != remote {
				t.Errorf("the cluster predicts\n%.400s\nhere it is\n%.400s", remote, local)
			}
			for _, args := range [][]string{{"summary"}, {"report", "--out", filepath.Join(dir, "page.html")}, {"draws", "--out", filepath.Join(dir, "draws.csv")}} {
				good(t, append(args, name, "--coordinators", c.address)...)
			}
		})
	}
}
