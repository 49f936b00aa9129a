package faults

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// While a job runs every certificate of the cluster and the authority that
// signs them are replaced. No chain is interrupted, the draws are the same, and
// in the end nobody knows the old authority.
func TestRotation(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: half a minute")
	}
	spec, want, draws := lasting(t, 800, 7)
	c := start(t, 3, 2)
	id := c.submit(spec)
	keys, fresh := filepath.Join(c.dir, "tls"), filepath.Join(t.TempDir(), "ca2")
	must := func(args ...string) {
		t.Helper()
		if out, err := c.run(args...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	must("certs", "init", "--dir", fresh, "--name", "second authority")
	before, err := os.ReadFile(filepath.Join(keys, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(filepath.Join(fresh, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	c.until("the chains run", 3*time.Minute, func() bool { j, ok := c.job(id); return ok && (j.State == "warmup" || j.State == "sampling") })

	trust := func(text []byte) {
		t.Helper()
		path := filepath.Join(keys, "ca.crt")
		if err := os.WriteFile(path+".new", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	both := append(before[:len(before):len(before)], after...)
	trust(both)
	noticed := func(what string, times int) {
		t.Helper()
		c.until(what, 3*time.Minute, func() bool {
			for _, p := range c.processes("") {
				log, _ := os.ReadFile(filepath.Join(c.dir, p.Name+".log"))
				if strings.Count(string(log), `msg="new certificates"`) < times {
					return false
				}
			}
			return true
		})
	}
	noticed("all trust both authorities", 1)
	for _, role := range []string{"coordinator", "worker", "client"} {
		must("certs", "issue", "--dir", fresh, "--out", keys, "--replace", "--role", role, "--name", role, "--shared", "--host", "127.0.0.1")
	}
	for _, p := range c.processes("") {
		for _, address := range []string{p.Addresses.GRPC, p.Addresses.Raft, p.Addresses.HTTP} {
			if address != "" {
				c.until(p.Name+" shows its new certificate at "+address, 3*time.Minute, func() bool { return issuer(t, address) == "second authority" })
			}
		}
	}
	if _, ok := c.job(id); !ok {
		t.Error("a client with a new certificate is not answered")
	}
	trust(after)
	noticed("all trust the new authority alone", 3)
	j, ok := c.job(id)
	if !ok {
		t.Fatal("the cluster does not answer")
	}
	t.Logf("%d of %d draws when the certificates were replaced", j.draws(), 4*draws)
	if j.DrawsSHA256 != "" {
		t.Error("the job was over before the certificates were replaced: make it longer")
	}
	c.ends(id, want, 5*time.Minute)
	j, _ = c.job(id)
	for i, ch := range j.Chains {
		if ch.Attempt > 1 {
			t.Errorf("chain %d was interrupted: attempt %d", i, ch.Attempt)
		}
	}
	for _, p := range c.processes("") {
		log, _ := os.ReadFile(filepath.Join(c.dir, p.Name+".log"))
		if n := strings.Count(string(log), "worker disconnected"); n > 0 {
			t.Errorf("%s lost a worker %d times", p.Name, n)
		}
	}

	// Whoever begins anew finds the others, and the other way round.
	leader, _ := c.leader()
	kill(leader, c.processes("worker")[0])
	c.until("everybody is back", 3*time.Minute, func() bool {
		out, err := c.run("workers", "--json")
		return err == nil && strings.Count(out, `"state": "ready"`) == 2
	})
}

// A worker whose certificate is revoked is out within seconds, and says why; with another certificate it
// comes back.
func TestRevocation(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: seconds of real processes")
	}
	t.Parallel() // it mostly waits
	c := &cluster{t: t, dir: t.TempDir(), keys: newKeys(t, "127.0.0.1")}
	m := newCoordinator(t, c, "c1")
	m.start(c)
	c.use(m)
	c.answers()
	c.background("w1", append([]string{"worker", "--id", "w1", "--dir", filepath.Join(c.dir, "w1"), "--coordinators", m.grpc, "--listen", "127.0.0.1:0", "--metrics", "", "--cores", "1"},
		c.keys.args("worker")...)...)
	ready := func(want bool) func() bool {
		return func() bool {
			out, err := c.run("workers", "--json")
			return err == nil && strings.Contains(out, `"state": "ready"`) == want
		}
	}
	c.until("the worker is in", 3*time.Minute, ready(true))
	c.keys.revoke("worker")
	c.until("it is out", 3*time.Minute, ready(false))
	c.until("it says why", 3*time.Minute, func() bool {
		log, _ := os.ReadFile(filepath.Join(c.dir, "w1.log"))
		return strings.Contains(string(log), "revoked?")
	})
	c.keys.ca.FilesFor("worker", "", time.Now(), 1, "127.0.0.1") // in the same place
	c.until("it is in again", 3*time.Minute, ready(true))
}

// issuer returns who signed the certificate that an address shows.
func issuer(t *testing.T, address string) string {
	t.Helper()
	var name string
	conf := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "ulisse-raft/1"},
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			c, err := x509.ParseCertificate(raw[0])
			if err == nil {
				name = c.Issuer.CommonName
			}
			return err
		}}
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", address, conf)
	if err != nil {
		return ""
	}
	c.Close()
	return name
}
