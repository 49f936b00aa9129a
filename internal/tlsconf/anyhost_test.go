package tlsconf_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/certs/certstest"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// A certificate for the host that stands for all of its role is good at any
// address, for that role alone; all else is verified as ever.
func TestAnyHost(t *testing.T) {
	ca, others := certstest.New(t), certstest.New(t)
	anyWorker, anyCoordinator := identity.Worker.AnyHost(), identity.Coordinator.AnyHost()
	const another = "is for %s and not for 127.0.0.1"
	for _, c := range []struct {
		name       string
		by         *certstest.Authority
		role, host string
		age        int // days
		want       string
	}{
		{"no host dialled", ca, "worker", "127.0.0.1", 0, "names no host"},
		{"its host", ca, "worker", "127.0.0.1", 0, ""},
		{"any host", ca, "worker", anyWorker, 0, ""},
		{"another host", ca, "worker", "w1.lab", 0, strings.Replace(another, "%s", "w1.lab", 1)},
		{"any host of another role", ca, "worker", anyCoordinator, 0, strings.Replace(another, "%s", anyCoordinator, 1)},
		{"another role", ca, "coordinator", anyWorker, 0, "is that of coordinator"},
		{"another authority", others, "worker", anyWorker, 0, "an authority that --tls-ca"},
		{"expired", ca, "worker", anyWorker, 3, "expired on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			from := time.Now().AddDate(0, 0, -c.age)
			served := loadThen(t, c.by.FilesFor(c.role, "server", from, 1, c.host), from)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			wrapped := served.Listen(l, func(string) []byte { return nil })
			done := make(chan struct{})
			go func() {
				defer close(done)
				if conn, err := wrapped.Accept(); err == nil {
					conn.SetDeadline(time.Now().Add(3 * time.Minute))
					conn.Read(make([]byte, 1))
					conn.Close()
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			dialled := "127.0.0.1"
			if c.name == "no host dialled" {
				dialled = ""
			}
			conn, err := ca.Source("worker", "dialer").Dial(ctx, l.Addr().String(), dialled, identity.Worker)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
			if conn != nil {
				conn.Close()
			}
			<-done
			l.Close()
		})
	}
}

// loadThen loads files as of a time, at which they were valid.
func loadThen(t *testing.T, f tlsconf.Files, then time.Time) *tlsconf.Source {
	t.Helper()
	s, err := tlsconf.Load(f, tlsconf.Options{Now: func() time.Time { return then }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
