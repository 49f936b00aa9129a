package kube

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// plane is a control plane of processes on this machine.
type plane struct {
	t          *testing.T
	dir        string
	bin        func(name string) string
	server     string // of the API
	kubeconfig string
}

const token = "a-token-of-this-test"

// patience bounds every wait.
const patience = 3 * time.Minute

// startPlane starts etcd and an API server.
func startPlane(t *testing.T) *plane {
	t.Helper()
	dir := os.Getenv("KUBE_DIR") // of a test in namespaces of its own
	if dir == "" {
		dir = t.TempDir()
	}
	p := &plane{t: t, dir: dir, bin: func(name string) string { return program(t, name) }}
	apiserver, etcd := p.bin("kube-apiserver"), p.bin("etcd")
	p.bin("kubectl")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	pki := filepath.Join(p.dir, "pki")
	p.write("pki/sa.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	p.write("pki/sa.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	p.write("pki/tokens.csv", []byte(token+",admin,admin,system:masters\n"))

	client, peer, port := "http://"+freeAddress(t), "http://"+freeAddress(t), freePort(t)
	p.server = "https://127.0.0.1:" + port
	p.start("etcd", etcd, "--data-dir="+filepath.Join(p.dir, "etcd"), "--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer, "--unsafe-no-fsync", "--log-level=error")
	p.start("kube-apiserver", apiserver, "--etcd-servers="+client, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+port,
		"--cert-dir="+pki, "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+pki+"/sa.pub",
		"--service-account-signing-key-file="+pki+"/sa.key", "--service-cluster-ip-range=10.96.0.0/16", "--token-auth-file="+pki+"/tokens.csv",
		"--authorization-mode=RBAC", "--endpoint-reconciler-type=none")
	p.kubeconfig = p.write("kubeconfig", fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, p.server, token))
	p.wait("the API server", func() error {
		_, err := p.try("", "get", "--raw", "/readyz")
		return err
	})
	return p
}

// manage starts the controllers and the scheduler.
func (p *plane) manage() {
	p.t.Helper()
	pki := filepath.Join(p.dir, "pki")
	p.start("kube-controller-manager", p.bin("kube-controller-manager"), "--kubeconfig="+p.kubeconfig,
		"--service-account-private-key-file="+pki+"/sa.key", "--use-service-account-credentials=false", "--leader-elect=false",
		"--horizontal-pod-autoscaler-sync-period=2s", "--bind-address=127.0.0.1", "--secure-port="+freePort(p.t), "--cert-dir="+pki)
	p.start("kube-scheduler", p.bin("kube-scheduler"), "--kubeconfig="+p.kubeconfig, "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port="+freePort(p.t), "--cert-dir="+pki)
}

// write puts a file into the plane's folder.
func (p *plane) write(name string, content []byte) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// start runs a program until the test ends; what it says is shown if the test
// fails.
func (p *plane) start(name, path string, args ...string) *exec.Cmd {
	p.t.Helper()
	log, err := os.Create(filepath.Join(p.dir, name+".log"))
	if err != nil {
		p.t.Fatal(err)
	}
	c := exec.Command(path, args...)
	c.Stdout, c.Stderr, c.Dir = log, log, p.dir
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		b, _ := os.ReadFile(log.Name())
		_ = c.Process.Kill() // nothing of it is to be kept
		_ = c.Wait()
		log.Close()
		if p.t.Failed() {
			p.t.Logf("%s said at the end:\n%s", name, b[max(0, len(b)-3000):])
		}
	})
	return c
}

// try runs kubectl.
func (p *plane) try(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, p.bin("kubectl"), append([]string{"--kubeconfig=" + p.kubeconfig, "--cache-dir=" + filepath.Join(p.dir, "cache")}, args...)...)
	var out, errs bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &out, &errs
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	if strings.Contains(errs.String(), "Warning:") {
		return out.String(), fmt.Errorf("kubectl %s: %s", strings.Join(args, " "), errs.String())
	}
	return out.String(), nil
}

// do runs kubectl, which has to succeed without a warning.
func (p *plane) do(stdin string, args ...string) string {
	p.t.Helper()
	out, err := p.try(stdin, args...)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// wait repeats f until it has no error.
func (p *plane) wait(what string, f func() error) {
	p.t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < patience; time.Sleep(100 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	p.t.Fatalf("waited in vain for %s: %v", what, err)
}

// since says how long something took, for the record.
func (p *plane) since(what string, began time.Time) {
	p.t.Logf("%s: %.1f s", what, time.Since(began).Seconds())
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// get asks an HTTP server without looking at its certificate.
func get(url string) ([]byte, error) {
	c := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	r, err := c.Get(url)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r.Body); err != nil {
		return nil, err
	}
	if r.StatusCode != http.StatusOK {
		return nil, errors.New(r.Status + ": " + b.String())
	}
	return b.Bytes(), nil
}

// job is what 'ulisse jobs --json' tells of one.
type job struct {
	ID, State, Message string
	DrawsSHA256        string `json:"draws_sha256"`
	Chains             []struct {
		Draws  int
		Worker string
	}
}

// release is the version of the image that the manifests name.
const release = "0.1.0"
