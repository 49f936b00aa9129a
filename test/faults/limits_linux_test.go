package faults

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ulisse-gp/ulisse/internal/dev"
)

// A process that can open no more files says so at its probe and answers nobody new. Once it can again all
// is well, and the draws are the same.
func TestFilesRunOut(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: seconds of real processes")
	}
	t.Parallel() // it mostly waits
	spec := fmt.Sprintf(recoverSpec, "files", 20, 20)
	want := undisturbed(t, spec)
	c := start(t, 1, 1)
	first := c.submitAs("first", spec)
	for _, p := range []dev.Process{c.processes("coordinator")[0], c.processes("worker")[0]} {
		probe := &http.Client{Transport: &http.Transport{MaxIdleConns: 1}} // its connection stays
		ready := func() (code int, text string) {
			t.Helper()
			r, err := probe.Get("http://" + p.Addresses.Metrics + "/readyz")
			if err != nil {
				t.Fatalf("the connection that is open is not answered: %v", err)
			}
			defer r.Body.Close()
			b, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			return r.StatusCode, string(b)
		}
		c.until(p.Name+" is ready", 3*time.Minute, func() bool { code, _ := ready(); return code == 200 })
		var was unix.Rlimit
		if err := unix.Prlimit(p.PID, unix.RLIMIT_NOFILE, nil, &was); err != nil {
			t.Skipf("limits of others cannot be set here: %v", err)
		}
		if err := unix.Prlimit(p.PID, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: was.Max}, nil); err != nil {
			t.Skipf("limits of others cannot be set here: %v", err)
		}
		code, text := ready()
		if code != 503 || !strings.Contains(text, "as many files and connections open as it may") {
			t.Errorf("%s without files: %d %s", p.Name, code, text)
		}
		if p.Role == "coordinator" {
			if out, err := c.run("jobs", "--json", "--timeout", "2s"); err == nil {
				t.Errorf("a new connection was answered: %s", out)
			}
		} else { // and it is given work meanwhile
			c.submitAs("second", strings.Replace(spec, "files", "second", 1))
			time.Sleep(2 * time.Second)
		}
		if err := unix.Prlimit(p.PID, unix.RLIMIT_NOFILE, &was, nil); err != nil {
			t.Fatal(err)
		}
		c.until(p.Name+" is ready again", 3*time.Minute, func() bool { code, _ := ready(); return code == 200 })
		probe.CloseIdleConnections()
	}
	c.answers()
	c.ends(first, want, 3*time.Minute)
	c.ends(c.submitAs("second", strings.Replace(spec, "files", "second", 1)), want, 3*time.Minute)
}
