package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// specText is a job of a minute or so on one core. The data are the Concrete
// table where it is to be found, else generated.
const specText = `
name: pods
data: %s
model: {kernel: rbf}
sampler: {method: fisher, chains: 3, warmup: 40, draws: %[2]d, checkpoint: 20}
solver: {tolerance: 1e-6, preconditioner: {kind: rpcholesky}}
stop: {rhat: 1.01, ess: 1e9, max_draws: %[2]d, max_time: 1h}
seed: 3
`

func spec(t *testing.T, draws int) string {
	dir := os.Getenv("ULISSE_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	data := "{synthetic: {n: 1000, d: 3, sigma: 1, tau: 0.3, lambda: 0.05, seed: 5}}"
	if path, err := filepath.Abs(filepath.Join(dir, "concrete.csv")); err == nil {
		if _, err := os.Stat(path); err == nil {
			data = fmt.Sprintf("{path: %s, target: strength}", path)
		}
	}
	return fmt.Sprintf(specText, data, draws)
}

// TestRealPods is tier 3: a job runs in real pods, while a worker, the leader and then
// all pods are deleted, and a worker and a coordinator are cut off for a while.
// Its draws are those of 'ulisse run'.
func TestRealPods(t *testing.T) {
	needTier(t, 3)
	for _, name := range []string{"kube-apiserver", "kubelet", "kube-scheduler", "kube-controller-manager"} {
		program(t, name)
	}
	findDebian(t)
	if !isolate(t) {
		return
	}
	sh(t, "ip", "link", "set", "lo", "up")
	began := time.Now()
	p := startPlane(t)
	p.manage()
	binary, archive := filepath.Join(p.dir, "ulisse"), filepath.Join(p.dir, "ulisse.tar")
	for _, args := range [][]string{{"build", "-o", binary, "./cmd/ulisse"}, {"run", "./hack/image", "--arch", goarch(t), "--version", release, "--out", archive}} {
		c := exec.Command("go", args...)
		c.Dir = "../.."
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	p.startNode(archive)
	p.since("control plane, image and node", began)

	u := &podCluster{plane: p, binary: binary}
	u.install()
	var text, want string
	for draws := 600; ; draws *= 3 { // long enough for all that is to happen to it
		text = p.write("spec.yaml", []byte(spec(t, draws)))
		began = time.Now()
		want = u.undisturbed(text)
		p.since(fmt.Sprintf("the undisturbed run of %d draws a chain", draws), began)
		if time.Since(began) > time.Minute {
			break
		}
	}

	began = time.Now()
	id := u.submit(text)
	u.progress(id, 1)
	fault := func(what string, f func()) {
		t.Helper()
		before := u.draws(id)
		began := time.Now()
		f()
		u.progress(id, before+1)
		p.since(fmt.Sprintf("%s (at draw %d), until the next draws", what, before), began)
	}
	fault("a worker's pod is deleted", func() { p.do("", "-n", "ulisse", "delete", "pod", u.driving(id), "--wait=false") })
	fault("a worker's pod is killed", func() {
		p.do("", "-n", "ulisse", "delete", "pod", u.driving(id), "--wait=false", "--grace-period=0", "--force=false")
	})
	fault("the leader's pod is deleted", func() { p.do("", "-n", "ulisse", "delete", "pod", u.leader()) })
	fault("a worker is cut off for 15 s", func() { u.cut(u.driving(id), 15*time.Second) })
	fault("the leader is cut off for 15 s", func() { u.cut(u.leader(), 15*time.Second) })
	fault("all pods are deleted", func() { p.do("", "-n", "ulisse", "delete", "pods", "--all") })
	got := u.ends(id)
	p.since("the disturbed job", began)
	if got != want {
		t.Errorf("the draws have the hash %s, undisturbed %s", got, want)
	}
}

// podCluster is ulisse in pods, and the client on their node.
type podCluster struct {
	*plane
	binary string
}

// install applies the manifests and waits until all pods are ready.
func (u *podCluster) install() {
	u.t.Helper()
	began := time.Now()
	namespace, err := os.ReadFile(filepath.Join(deploy, "base", "namespace.yaml"))
	if err != nil {
		u.t.Fatal(err)
	}
	u.do(string(namespace), "apply", "-f", "-")
	u.wait("the account that pods run as", func() error {
		_, err := u.try("", "-n", "ulisse", "get", "serviceaccount", "default")
		return err
	})
	c := exec.Command(filepath.Join(deploy, "secrets"), filepath.Join(u.dir, "ca"))
	c.Env = append(os.Environ(), "ULISSE="+u.binary)
	var said bytes.Buffer
	c.Stderr = &said
	secrets, err := c.Output()
	if err != nil {
		u.t.Fatalf("%v: %s", err, said.String())
	}
	u.do(string(secrets), "apply", "-f", "-")
	u.ulisse("certs", "issue", "--dir", filepath.Join(u.dir, "ca"), "--role", "client", "--name", "ada")
	for i := range 3 { // volumes, of the user that pods run as
		path := filepath.Join(u.dir, "volumes", strconv.Itoa(i))
		if err := errors.Join(os.MkdirAll(path, 0o700), os.Chown(path, 65532, 65532)); err != nil {
			u.t.Fatal(err)
		}
		u.do(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: v%d}, spec: {capacity: {storage: 20Gi}, accessModes: [ReadWriteOnce], hostPath: {path: %q}}}`, i, path), "apply", "-f", "-")
	}
	u.do(string(kustomize(u.t, "testdata/pods")), "apply", "-f", "-")
	u.ready()
	// The limit of the manifest is one core, whatever the node has.
	var workers []struct{ Cores int }
	if err := u.ask(&workers, "workers", "--json"); err != nil || len(workers) != 3 || workers[0].Cores != 1 {
		u.t.Errorf("workers that may use one core: %+v, %v", workers, err)
	}
	u.since("from apply until all pods are ready", began)
}

// ready waits until all pods are.
func (u *podCluster) ready() {
	u.t.Helper()
	for _, w := range []string{"statefulset/ulisse-coordinator", "deployment/ulisse-worker"} {
		if _, err := u.try("", "-n", "ulisse", "rollout", "status", w, "--timeout=150s"); err != nil {
			out, _ := u.try("", "-n", "ulisse", "get", "pods", "-o", "wide")
			events, _ := u.try("", "-n", "ulisse", "get", "events", "--sort-by=.lastTimestamp")
			logs, _ := u.try("", "-n", "ulisse", "logs", "ulisse-coordinator-0", "--tail=20")
			u.t.Fatalf("%v\n%s\n%s\n%s", err, out, events[max(0, len(events)-3000):], logs)
		}
	}
}

// command is one of ulisse's on the node.
func (u *podCluster) command(args ...string) *exec.Cmd {
	c := exec.Command(u.binary, args...)
	ca := filepath.Join(u.dir, "ca")
	token, err := os.ReadFile(filepath.Join(ca, "admin-token"))
	if err != nil {
		u.t.Fatal(err)
	}
	c.Env = append(os.Environ(), "ULISSE_TOKEN="+strings.TrimSpace(string(token)), "ULISSE_TLS_CA="+filepath.Join(ca, "ca.crt"), "ULISSE_TLS_CERT="+filepath.Join(ca, "ada.crt"), "ULISSE_TLS_KEY="+filepath.Join(ca, "ada.key"),
		"ULISSE_COORDINATORS=ulisse-coordinator-0.ulisse-coordinators:7000,ulisse-coordinator-1.ulisse-coordinators:7000,ulisse-coordinator-2.ulisse-coordinators:7000")
	return c
}

// ask runs a command and reads the JSON that it prints.
func (u *podCluster) ask(v any, args ...string) error {
	c := u.command(args...)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("ulisse %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return json.Unmarshal(out, v)
}

func (u *podCluster) ulisse(args ...string) {
	u.t.Helper()
	c := u.command(args...)
	c.Env = os.Environ()
	if out, err := c.CombinedOutput(); err != nil {
		u.t.Fatalf("ulisse %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (u *podCluster) undisturbed(spec string) string {
	u.t.Helper()
	c := exec.Command(u.binary, "run", spec, "--json", "--quiet", "--out", filepath.Join(u.dir, "undisturbed"))
	out, err := c.Output()
	if e := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &e) || e.ExitCode() != 3) {
		u.t.Fatalf("ulisse run: %v: %s", err, out)
	}
	var sum struct {
		DrawsSHA256 string `json:"draws_sha256"`
	}
	if err := json.Unmarshal(out, &sum); err != nil {
		u.t.Fatal(err)
	}
	return sum.DrawsSHA256
}

func (u *podCluster) submit(spec string) string {
	u.t.Helper()
	var j job
	u.wait("submission", func() error { return u.ask(&j, "submit", spec, "--json", "--client-id", "pods") })
	return j.ID
}

func (j job) draws() (n int) {
	for _, c := range j.Chains {
		n += c.Draws
	}
	return n
}

// look returns the job when the cluster answers.
func (u *podCluster) look(id string) (found job) {
	u.t.Helper()
	u.wait("an answer", func() error {
		var all []job
		if err := u.ask(&all, "jobs", "--json"); err != nil {
			return err
		}
		for _, j := range all {
			if j.ID == id {
				found = j
				return nil
			}
		}
		return errors.New("the job is lost")
	})
	return found
}

func (u *podCluster) draws(id string) int { return u.look(id).draws() }

// progress waits until the job has that number of draws; it must not end before.
func (u *podCluster) progress(id string, draws int) {
	u.t.Helper()
	u.wait("draws", func() error {
		switch j := u.look(id); {
		case j.draws() >= draws:
			return nil
		case j.State == "failed", j.State == "unconverged", j.State == "converged":
			u.t.Fatalf("the job ended %s (%s) too early for this test", j.State, j.Message)
			return nil
		default:
			return fmt.Errorf("%s, %d draws", j.State, j.draws())
		}
	})
}

// driving is the pod of a worker that drives a chain of the job.
func (u *podCluster) driving(id string) (worker string) {
	u.t.Helper()
	u.wait("a driver", func() error {
		for _, c := range u.look(id).Chains {
			if c.Worker != "" {
				worker = c.Worker
				return nil
			}
		}
		return errors.New("nobody drives a chain")
	})
	return worker
}

func (u *podCluster) leader() (leader string) {
	u.t.Helper()
	u.wait("a leader", func() error {
		var m struct{ Leader string }
		err := u.ask(&m, "cluster", "members", "--json")
		if leader = m.Leader; err == nil && leader == "" {
			err = errors.New("there is none")
		}
		return err
	})
	return leader
}

func (u *podCluster) ends(id string) string {
	u.t.Helper()
	for began := time.Now(); ; time.Sleep(time.Second) {
		j := u.look(id)
		switch {
		case j.State == "unconverged":
			return j.DrawsSHA256
		case j.State == "failed" || j.State == "converged" || time.Since(began) > 10*time.Minute:
			u.t.Fatalf("the job is %s (%s) with %d draws", j.State, j.Message, j.draws())
		}
	}
}

// cut takes a pod's cable out for a while.
func (u *podCluster) cut(pod string, d time.Duration) {
	u.t.Helper()
	u.t.Logf("cut off: %s", pod)
	pid := ""
	u.wait("the process of "+pod, func() error {
		procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return err
		}
		for _, f := range procs {
			if line, err := os.ReadFile(f); err == nil && strings.Contains(string(line), "\x00--id="+pod+"\x00") {
				pid = filepath.Base(filepath.Dir(f))
				return nil
			}
		}
		return errors.New("none")
	})
	sh(u.t, "nsenter", "-t", pid, "-n", "ip", "link", "set", "eth0", "down")
	time.Sleep(d)
	sh(u.t, "nsenter", "-t", pid, "-n", "ip", "link", "set", "eth0", "up")
	// The route went with the cable.
	_ = exec.Command("nsenter", "-t", pid, "-n", "ip", "route", "add", "default", "via", gateway).Run()
}
