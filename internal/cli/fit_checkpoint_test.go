package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// A real process that fits from minibatches, killed with SIGKILL again and again, and resumed, ends with the bits of one that was left alone; until then there is a checkpoint and no
// folder, and then a folder and no checkpoint.
func TestKilledFit(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	dir := t.TempDir()
	var table strings.Builder
	table.WriteString("a,b,y,n\n")
	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		a, b := r.NormFloat64(), r.NormFloat64()
		fmt.Fprintf(&table, "%v,%v,%v,%d\n", a, b, math.Sin(2*a)+b+0.1*r.NormFloat64(), int(2+math.Sin(a)))
	}
	write(t, dir, "table.csv", table.String())
	for name, x := range map[string]struct {
		model string
		args  []string
	}{
		"deep": {"target: y}\nmodel: {approximation: {kind: deep, layers: 2, hidden: 2, features: 15, steps: 900, minibatch: 50}}", nil},
		"svgp": {"target: n, inputs: [a, b]}\nmodel: {likelihood: poisson, approximation: {kind: svgp, inducing: 15, optimise: true}}", []string{"--method", "adam", "--batch", "40", "--iterations", "500"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := write(t, dir, name+".yaml", "name: n\ndata: {path: table.csv, "+x.model+"\n")
			calm, out := filepath.Join(dir, name+"-calm"), filepath.Join(dir, name)
			if status, _, said := ulisse(t, "", append([]string{"fit", spec, "--out", calm, "-q"}, x.args...)...); status != 0 && status != ExitUnconverged {
				t.Fatal(said)
			}
			kills := 0
			for args := append([]string{"fit", spec, "--out", out}, x.args...); ; args = []string{"fit", "--resume", out, "--threads", "1"} {
				status := killedAtCheckpoint(t, checkpointPath(out), append(args, "-q", "--checkpoint", "10ms")...)
				if status != -1 {
					if status != 0 && status != ExitUnconverged {
						t.Fatalf("exit code %d after %d kills", status, kills)
					}
					break
				}
				if kills++; report.IsFit(out) || kills > 100 {
					t.Fatalf("killed %d times, and there is a folder: %v", kills, report.IsFit(out))
				}
				if kills == 1 {
					if status, _, said := ulisse(t, "", append([]string{"fit", spec, "--out", out, "-q"}, x.args...)...); status != ExitBadInput || !strings.Contains(said, "go on with 'ulisse fit --resume") {
						t.Errorf("a second fit begins beside the checkpoint: %d, %s", status, said)
					}
				}
			}
			if kills < 2 {
				t.Errorf("killed %d times only", kills)
			}
			if got, want := estimateBytes(t, out), estimateBytes(t, calm); !bytes.Equal(got, want) {
				t.Errorf("the fit is another: %.300s\n%.300s", got, want)
			}
			if _, err := os.Stat(checkpointPath(out)); err == nil {
				t.Error("the checkpoint is left")
			}
			if status, _, said := ulisse(t, "", "fit", "--resume", out); status != ExitBadInput || !strings.Contains(said, "has come to its end") {
				t.Errorf("a fit that has ended: %d, %s", status, said)
			}
		})
	}
}

// killedAtCheckpoint runs a command line in a process of its own, and kills it when it has written its second checkpoint. It returns the exit code, −1 if it was killed.
func killedAtCheckpoint(t *testing.T, path string, args ...string) int {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	written := func() time.Time {
		info, err := os.Stat(path)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), runMain+"=1")
	before, times := written(), 0
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case <-done:
			return cmd.ProcessState.ExitCode()
		case <-time.After(time.Millisecond):
		}
		if now := written(); !now.IsZero() && !now.Equal(before) {
			before = now
			if times++; times == 2 {
				cmd.Process.Kill()
				<-done
				return cmd.ProcessState.ExitCode()
			}
		}
	}
}

// estimateBytes returns all of a fit that is a function of the specification and the data.
func estimateBytes(t *testing.T, dir string) []byte {
	t.Helper()
	f := readFit(t, dir)
	f.Cost.Seconds = 0
	for i := range f.Trace {
		f.Trace[i].Seconds = 0
	}
	out, err := json.Marshal(f)
	if err != nil || len(f.Trace) < 100 {
		t.Fatalf("%d steps, %v", len(f.Trace), err)
	}
	return out
}

// A checkpoint that is damaged, of other data or of a program that rounds otherwise, is refused, and so is what does not go with --resume.
func TestCheckpointsThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "table.csv", "a,y\n1,2\n2,3\n3,1\n4,2\n5,2\n")
	out := filepath.Join(dir, "out")
	path := checkpointPath(out)
	cp := fitCheckpoint{Rounding: "other", Spec: "name: n\ndata: {path: " + filepath.Join(dir, "table.csv") + ", target: y}\nmodel: {approximation: {kind: deep}}\n", Data: "other", Method: quasiNewton, Objective: objectiveMAP, Iterations: 200, Batch: 500}
	if err := cp.write(path); err != nil {
		t.Fatal(err)
	}
	refused := func(want string, args ...string) {
		t.Helper()
		if status, _, said := ulisse(t, "", append([]string{"fit", "--resume", out}, args...)...); status != ExitBadInput || !strings.Contains(said, want) {
			t.Errorf("exit code %d, %q, want %q", status, said, want)
		}
	}
	refused("leave out x.yaml, --batch, --out", "x.yaml", "--batch", "7", "--out", "z")
	refused("the fit began with the rounding of other")
	cp.Rounding = version.Rounding()
	if err := cp.write(path); err != nil {
		t.Fatal(err)
	}
	refused("are not those that the fit began with")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	write(t, dir, "out.checkpoint", string(text))
	refused("was changed or is damaged")
	write(t, dir, "out.checkpoint", "something else")
	refused("is no checkpoint of a fit")
	os.Remove(path)
	refused("there is no checkpoint")
}
