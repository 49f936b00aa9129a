package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// deepText is a fit by random features of a few seconds.
const deepText = `
name: deep
data: {path: %s, target: y}
model: {approximation: {kind: deep, layers: 2, hidden: 2, features: 40, steps: 1200, minibatch: 200}}
`

// A fit over workers, without a coordinator and over TLS, has the bits of one alone, though one worker is killed in the middle; who shows no worker's certificate
// is refused.
func TestWorkersOfAFitAreKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("two fits: not in short tests")
	}
	c := &cluster{t: t, dir: t.TempDir(), keys: newKeys(t, "127.0.0.1")}
	var table strings.Builder
	table.WriteString("a,b,y\n")
	for i := range 400 {
		a, b := math.Sin(float64(i)), math.Cos(1.7*float64(i))
		fmt.Fprintf(&table, "%g,%g,%g\n", a, b, math.Sin(3*a)+b+0.1*math.Sin(13*float64(i)))
	}
	spec := c.file("deep.yaml", fmt.Sprintf(deepText, c.file("table.csv", table.String())))
	alone, out := filepath.Join(c.dir, "alone"), filepath.Join(c.dir, "out")
	c.fitted("fit", spec, "--out", alone, "-q")

	start := func(name, listen string) (*exec.Cmd, string) {
		cmd := c.background(name, append([]string{"worker", "--id", name, "--dir", filepath.Join(c.dir, name), "--coordinators", "127.0.0.1:1", "--listen", listen, "--metrics", "", "--cores", "1"}, c.keys.args("worker")...)...)
		return cmd, c.listens(name)
	}
	first, at := start("w1", "127.0.0.1:0")
	_, other := start("w2", "127.0.0.1:0")
	var log output
	fit := exec.Command(binary, append([]string{"fit", spec, "--out", out, "--workers", at + "," + other}, c.keys.args("worker")...)...)
	fit.Stderr = &log
	if err := fit.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- fit.Wait() }()
	c.until("both take part", time.Minute, func() bool { return strings.Count(log.String(), "a worker takes part") == 2 || len(ended) > 0 })
	end(first)
	if err := <-ended; err != nil && fit.ProcessState.ExitCode() != 3 {
		t.Fatalf("%v: %s", err, log.String())
	}
	if text := log.String(); strings.Count(text, "a worker takes part") < 2 || !strings.Contains(text, "a worker is left alone for a while") {
		t.Errorf("the fit says:\n%s", text)
	}
	if !bytes.Equal(c.parameters(out), c.parameters(alone)) {
		t.Error("the fit over workers is another")
	}
	client := c.keys.ca.FilesFor("client", "ada", time.Now(), 1, "127.0.0.1")
	text, err := exec.Command(binary, "fit", spec, "--out", filepath.Join(c.dir, "refused"), "--workers", other, "--tls-ca", client.CA, "--tls-cert", client.Cert, "--tls-key", client.Key).CombinedOutput()
	if err == nil || !strings.Contains(string(text), "of which workers ask for a worker's") {
		t.Errorf("a client's certificate: %v, %s", err, text)
	}
}

// fitted runs a fit, which need not have converged.
func (c *cluster) fitted(args ...string) {
	c.t.Helper()
	if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
		if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != 3 {
			c.t.Fatalf("%v: %s", err, out)
		}
	}
}

// parameters returns those of a fit.
func (c *cluster) parameters(dir string) []byte {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "fit.json"))
	if err != nil {
		c.t.Fatal(err)
	}
	var f struct {
		Extra []json.Number `json:"extra"`
	}
	if err := json.Unmarshal(text, &f); err != nil || len(f.Extra) < 100 {
		c.t.Fatal(err, len(f.Extra))
	}
	return fmt.Append(nil, f.Extra)
}

var listening = regexp.MustCompile(`worker started.* address=(\S+)`)

// listens returns where a worker does, once it does.
func (c *cluster) listens(name string) (address string) {
	c.t.Helper()
	c.until(name+" listens", time.Minute, func() bool {
		text, _ := os.ReadFile(filepath.Join(c.dir, name+".log"))
		m := listening.FindSubmatch(text)
		if m != nil {
			address = string(m[1])
		}
		return m != nil
	})
	return address
}

// output is what a process prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
