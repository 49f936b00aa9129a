package monitor

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// get asks a server over its port.
func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	r, err := http.Get("http://" + s.Address() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

func serve(t *testing.T, pprof bool) *Server {
	t.Helper()
	s, err := Serve(Config{Address: "127.0.0.1:0", Pprof: pprof})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// What each probe answers in each part of a process's life.
func TestProbes(t *testing.T) {
	s := serve(t, false)
	want := func(when string, codes map[string]int) {
		t.Helper()
		for path, code := range codes {
			if got, text := get(t, s, path); got != code {
				t.Errorf("%s: %s answers %d %q, want %d", when, path, got, text, code)
			}
		}
	}
	want("while it starts", map[string]int{"/livez": 200, "/healthz": 200, "/startupz": 503, "/readyz": 503})
	trouble := errors.New("no leader")
	s.Started(func() error { return trouble })
	want("without a leader", map[string]int{"/livez": 200, "/healthz": 200, "/startupz": 200, "/readyz": 503})
	if _, text := get(t, s, "/readyz"); !strings.Contains(text, "no leader") {
		t.Errorf("/readyz does not say why: %q", text)
	}
	trouble = nil
	want("with a leader", map[string]int{"/livez": 200, "/healthz": 200, "/startupz": 200, "/readyz": 200})
	s.Stopping()
	want("while it stops", map[string]int{"/livez": 200, "/startupz": 200, "/readyz": 503})
}

func TestMetricsAndProfiles(t *testing.T) {
	s := serve(t, false)
	if code, text := get(t, s, "/metrics"); code != 200 || !strings.Contains(text, "ulisse_build_info{") || !strings.Contains(text, "go_goroutines") {
		t.Errorf("%d %q", code, text)
	}
	if code, _ := get(t, s, "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("profiles are served though nobody allowed them: %d", code)
	}
	if code, text := get(t, serve(t, true), "/debug/pprof/goroutine?debug=1"); code != 200 || !strings.Contains(text, "goroutine profile") {
		t.Errorf("%d %q", code, text)
	}
}

// A process with no private port measures all the same; a port that is taken is
// told.
func TestListening(t *testing.T) {
	none, err := Serve(Config{})
	if err != nil || none.Address() != "" || none.Close() != nil {
		t.Errorf("%v", err)
	}
	s := serve(t, false)
	if _, err := Serve(Config{Address: s.Address()}); err == nil || !strings.Contains(err.Error(), "metrics and probes") {
		t.Errorf("a taken port: %v", err)
	}
}
