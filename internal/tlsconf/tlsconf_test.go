package tlsconf_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ulisse-gp/ulisse/internal/certs/certstest"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFilesCheck(t *testing.T) {
	for _, c := range []struct {
		files tlsconf.Files
		dials bool
		want  string
	}{
		{tlsconf.Files{}, false, ""},
		{tlsconf.Files{CA: "ca"}, true, ""},
		{tlsconf.Files{CA: "ca"}, false, "needs --tls-cert"},
		{tlsconf.Files{Cert: "c", CA: "ca"}, true, "give both"},
		{tlsconf.Files{Key: "k", CA: "ca"}, true, "give both"},
		{tlsconf.Files{Cert: "c", Key: "k"}, true, "needs --tls-ca"},
		{tlsconf.Files{Cert: "c", Key: "k", CA: "ca"}, false, ""},
	} {
		err := c.files.Check(c.dials)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v, dials %v: %v, want %q", c.files, c.dials, err, c.want)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	a, b := certstest.New(t), certstest.New(t)
	good := a.Files("worker", "w")
	write := func(text string) string {
		p := t.TempDir() + "/file"
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		name  string
		files tlsconf.Files
		want  string
	}{
		{"no file", tlsconf.Files{Cert: "/none", Key: good.Key, CA: good.CA}, "no such file"},
		{"another key", tlsconf.Files{Cert: good.Cert, Key: a.Files("worker", "x").Key, CA: good.CA}, "does not match"},
		{"another authority", tlsconf.Files{Cert: good.Cert, Key: good.Key, CA: b.CA()}, "not signed by an authority of"},
		{"an empty CA", tlsconf.Files{Cert: good.Cert, Key: good.Key, CA: write("nothing")}, "holds no certificate of an authority"},
		{"a bad CA", tlsconf.Files{Cert: good.Cert, Key: good.Key, CA: write("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")}, "x509"},
		{"expired", a.Expired("worker", "old"), "expired on"},
		{"not yet", a.FilesFor("worker", "new", time.Now().AddDate(0, 0, 2), 1, "h"), "not valid before"},
		{"another role", a.Files("client", "ada"), "that of client ada: that of a worker is needed"},
		{"without a role", tlsconf.Files{Cert: good.CA, Key: strings.TrimSuffix(good.CA, "crt") + "key", CA: good.CA}, "names no role"},
	} {
		_, err := tlsconf.Load(c.files, tlsconf.Options{Role: identity.Worker})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// log collects what is logged.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// A new certificate is used, a bad one is not; the end of what is in use is
// told.
func TestReload(t *testing.T) {
	ca := certstest.New(t)
	f := ca.Files("worker", "w")
	var l log
	s, err := tlsconf.Load(f, tlsconf.Options{Role: identity.Worker, Logger: slog.New(slog.NewTextHandler(&l, nil))})
	if err != nil {
		t.Fatal(err)
	}
	until := func() time.Time { return s.Expiries()[0].To }
	was := until()
	if err := s.Reload(); err != nil || until() != was {
		t.Fatalf("nothing changed, and yet: %v", err)
	}
	ca.FilesFor("worker", "w", time.Now(), 20, "127.0.0.1")
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := until(); !got.After(was.AddDate(0, 0, 18)) {
		t.Fatalf("the certificate ends on %v, not 20 days from now", got)
	}
	now := until()
	good, err := os.ReadFile(f.Cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "rubbish", string(good[:len(good)/2])} {
		if err := os.WriteFile(f.Cert, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Reload(); err == nil || until() != now {
			t.Fatalf("a bad certificate is used (%v)", err)
		}
	}
	if err := os.WriteFile(f.Cert, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	// The authority is taken away from under the certificate.
	ca.Trust(false, certstest.New(t))
	if err := s.Reload(); err == nil || !strings.Contains(err.Error(), "not signed by an authority") {
		t.Fatalf("a certificate that nobody would accept is used: %v", err)
	}
	if n := len(s.Expiries()); n != 2 {
		t.Fatalf("%d certificates in use, want the old two", n)
	}
}

func TestWarnsOfTheEnd(t *testing.T) {
	ca := certstest.New(t)
	f := ca.FilesFor("worker", "w", time.Now(), 90, "127.0.0.1")
	for _, c := range []struct {
		days int
		want string
	}{{0, ""}, {50, ""}, {65, "a certificate is about to expire"}, {89, "about to expire"}, {91, "has expired"}} {
		var l log
		at := time.Now()
		s, err := tlsconf.Load(f, tlsconf.Options{Logger: slog.New(slog.NewTextHandler(&l, nil)), Now: func() time.Time { return at }})
		if err != nil {
			t.Fatal(err)
		}
		at = at.AddDate(0, 0, c.days)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Watch(ctx) // warns once
		own := ""
		for line := range strings.Lines(l.String()) {
			if strings.Contains(line, "kind=certificate") {
				own = line
			}
		}
		if (own == "") != (c.want == "") || !strings.Contains(own, c.want) {
			t.Errorf("after %d days it said %q, want %q", c.days, own, c.want)
		}
	}
}
