package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var sample = &Event{Version: Version, ID: "abc-7", Event: "converged", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	Job: Job{ID: "abc", Name: "concrete", State: "converged", StopReason: "converged", Draws: 500, RHat: 1.004, ESS: 1200}}

// The body and the headers that a receiver gets are what the documentation says,
// and the signature is that of RFC 2104 over the body.
func TestWebhook(t *testing.T) {
	var header http.Header
	var body []byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	defer s.Close()
	h, err := New(Config{Webhooks: []string{s.URL}, Secret: []byte("key")})
	if err != nil {
		t.Fatal(err)
	}
	targets := h.Targets(nil)
	if len(targets) != 1 {
		t.Fatalf("%d targets", len(targets))
	}
	if err := targets[0].Send(t.Context(), sample); err != nil {
		t.Fatal(err)
	}
	const want = `{"version":1,"id":"abc-7","event":"converged","time":"2026-01-02T03:04:05Z","job":{"id":"abc","name":"concrete","state":"converged","stop_reason":"converged","draws":500,"rhat":1.004,"ess":1200}}`
	if string(body) != want {
		t.Errorf("%s", body)
	}
	// printf %s "$BODY" | openssl dgst -sha256 -hmac key
	if got := header.Get("Ulisse-Signature"); got != Sign([]byte("key"), body) || len(got) != len("sha256=")+64 {
		t.Errorf("signature %q", got)
	}
	if header.Get("Ulisse-Delivery") != "abc-7" || header.Get("Ulisse-Event") != "converged" || header.Get("Content-Type") != "application/json" {
		t.Errorf("%v", header)
	}
}

// A known answer of HMAC-SHA256.
func TestSign(t *testing.T) {
	if got := Sign([]byte("key"), []byte("The quick brown fox jumps over the lazy dog")); got != "sha256=f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8" {
		t.Error(got)
	}
}

// Answers that are not 2xx are failures, redirects among them: whoever they lead
// to hears nothing.
func TestWebhookFails(t *testing.T) {
	reached := false
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer inner.Close()
	for code, location := range map[int]string{500: "", 404: "", 302: inner.URL, 307: inner.URL} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if location != "" {
				w.Header().Set("Location", location)
			}
			w.WriteHeader(code)
		}))
		h, err := New(Config{Webhooks: []string{s.URL + "/secret-path"}})
		if err != nil {
			t.Fatal(err)
		}
		err = h.Targets(nil)[0].Send(t.Context(), sample)
		s.Close()
		if err == nil || strings.Contains(err.Error(), "secret-path") {
			t.Errorf("%d: %v", code, err)
		}
		if err = h.Targets(nil)[0].Send(t.Context(), sample); err == nil || strings.Contains(err.Error(), "secret-path") { // nobody listens
			t.Errorf("%v", err)
		}
	}
	if reached {
		t.Error("a redirect was followed")
	}
}

func TestAllowed(t *testing.T) {
	h, err := New(Config{Hosts: []string{"hooks.example.org", "*.lab.example", "10.0.0.1:8080"}})
	if err != nil {
		t.Fatal(err)
	}
	for u, ok := range map[string]bool{
		"https://hooks.example.org/x":          true,
		"https://HOOKS.example.org/x":          true,
		"http://hooks.example.org":             true,
		"https://hooks.example.org:8443/x":     false,
		"https://example.org/x":                false,
		"https://evil-hooks.example.org":       false,
		"https://a.lab.example/":               true,
		"https://a.b.lab.example/":             true,
		"https://lab.example/":                 false,
		"https://notlab.example/":              false,
		"http://10.0.0.1:8080/":                true,
		"http://10.0.0.1/":                     false,
		"http://169.254.169.254/latest":        false,
		"http://localhost:7002/v1/jobs":        false,
		"file:///etc/passwd":                   false,
		"gopher://hooks.example.org/":          false,
		"https://u:p@hooks.example.org/":       false,
		"https://hooks.example.org@evil.org/x": false,
		"//hooks.example.org/x":                false,
		"":                                     false,
		"https://hooks.example.org.evil.org/x": false,
	} {
		if err := h.Allowed(u); (err == nil) != ok {
			t.Errorf("%s: %v", u, err)
		}
		if n := len(h.Targets([]string{u})); (n == 1) != ok {
			t.Errorf("%s: %d targets", u, n)
		}
	}
	var none *Hooks
	if none.Allowed("https://hooks.example.org/") == nil || len(none.Targets([]string{"https://hooks.example.org/"})) != 0 {
		t.Error("with no hooks a job may name any")
	}
}

// What a job's webhook connects to is judged by the address that its host's name resolved to.
func TestAddresses(t *testing.T) {
	h, err := New(Config{Hosts: []string{"localhost:1", "10.0.0.1"}, Networks: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("fd00:2::/32")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		named, resolved string
		ok              bool
	}{
		{"example.org:443", "93.184.216.34:443", true},
		{"example.org:443", "[2606:2800:220:1::1]:443", true},
		{"example.org:443", "127.0.0.1:443", false},
		{"example.org:443", "[::1]:443", false},
		{"example.org:443", "[::ffff:127.0.0.1]:443", false},
		{"example.org:443", "10.1.2.3:443", false},
		{"example.org:443", "192.168.1.1:443", false},
		{"example.org:443", "[fd00:1::1]:443", false},
		{"example.org:443", "[fe80::1%eth0]:443", false},
		{"example.org:443", "100.64.0.1:443", false},
		{"example.org:443", "0.0.0.0:443", false},
		{"example.org:443", "224.0.0.1:443", false},
		{"metadata.example.org:80", "169.254.169.254:80", false},
		{"hooks.lab:443", "10.2.3.4:443", true},        // of a network that is allowed
		{"hooks.lab:443", "[fd00:2::7]:443", true},     // likewise
		{"10.0.0.1:443", "10.0.0.1:443", true},         // the operator listed the address itself
		{"10.0.0.1:443", "10.0.0.2:443", false},        // it is not that one
		{"hooks.lab:443", "[::ffff:10.2.0.1]:1", true}, // as IPv4
	} {
		if err := h.allowAddress(c.named, c.resolved); (err == nil) != c.ok {
			t.Errorf("%s at %s: %v", c.named, c.resolved, err)
		}
	}
}

// A name on the list that resolves to this machine is not called for a job; one that the operator
// gives is, and so is that of a job where the network is allowed.
func TestJobsReachNothingInside(t *testing.T) {
	calls := 0
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
	defer s.Close()
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	inside := "http://localhost:" + port
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for _, c := range []struct {
		config Config
		jobs   []string
		ok     bool
	}{
		{Config{Hosts: []string{"localhost:" + port}}, []string{inside}, false},
		{Config{Hosts: []string{"localhost:" + port}, Networks: loopback}, []string{inside}, true},
		{Config{Webhooks: []string{inside}}, nil, true},
	} {
		h, err := New(c.config)
		if err != nil {
			t.Fatal(err)
		}
		calls = 0
		targets := h.Targets(c.jobs)
		if len(targets) != 1 {
			t.Fatalf("%+v: %d targets", c.config, len(targets))
		}
		err = targets[0].Send(t.Context(), sample)
		if (err == nil) != c.ok || (calls == 1) != c.ok || err != nil && !strings.Contains(err.Error(), "--webhook-networks") {
			t.Errorf("%+v: %v, %d calls", c.config, err, calls)
		}
	}
}

func TestBadConfig(t *testing.T) {
	for _, c := range []Config{{Webhooks: []string{"ftp://x"}}, {Webhooks: []string{"https://"}}, {Hosts: []string{"*"}}, {Hosts: []string{"https://x.org"}}, {Hosts: []string{""}}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// A command gets the event on its standard input and in its environment; what a
// job is called is never a part of the command line.
func TestCommand(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	t.Setenv("OUT", out)
	h, err := New(Config{Command: `echo "$ULISSE_EVENT $ULISSE_EVENT_ID $ULISSE_JOB_NAME" > "$OUT"; cat >> "$OUT"`})
	if err != nil {
		t.Fatal(err)
	}
	e := *sample
	e.Job.Name = "$(touch gone); `touch gone`"
	if err := h.Targets(nil)[0].Send(t.Context(), &e); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	head, body, _ := strings.Cut(string(text), "\n")
	if head != "converged abc-7 "+e.Job.Name {
		t.Errorf("%q", head)
	}
	var got Event
	if err := json.Unmarshal([]byte(body), &got); err != nil || cmp.Diff(got, e) != "" {
		t.Errorf("%v\n%s", err, cmp.Diff(got, e))
	}
	if _, err := os.Stat("gone"); err == nil {
		t.Error("a job's name was run")
	}

	h.Command = "echo it is broken >&2; exit 3"
	if err := h.Targets(nil)[0].Send(t.Context(), sample); err == nil || !strings.Contains(err.Error(), "it is broken") {
		t.Errorf("%v", err)
	}
	h.Command = "sleep 60"
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := h.Targets(nil)[0].Send(ctx, sample); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("a command that hangs: %v", err)
	}
}
