package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/dev"
)

// network is a cluster of which every process, and the client, is in a network
// namespace of its own. Their cables end in a further namespace, at bridges:
// one for each side of a partition. To cut somebody off is to plug the cable
// into another bridge; nobody is told, packets just do not arrive.
type network struct {
	*cluster
	hub   string            // the bridges' namespace
	side  map[string]string // bridge by process; empty for none
	procs []dev.Process
	deaf  [][2]string // who is not heard, and by whom
}

// The names of namespaces begin with this and the test's process.
const namespacePrefix = "ulisse-faults-"

// theClient is the name of the client's end in a network.
const theClient = "client"

// sides is the number of bridges.
const sides = 2

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// needNamespaces skips a test where network namespaces cannot be made, and
// removes those of tests that were killed.
func needNamespaces(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces are root's to make")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("there is no ip: install iproute2")
	}
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		t.Skipf("ip netns list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest, ours := strings.CutPrefix(name, namespacePrefix)
		pid, _, _ := strings.Cut(rest, "-")
		if _, err := os.Stat("/proc/" + pid); ours && errors.Is(err, fs.ErrNotExist) {
			_ = ip("netns", "del", name)
		}
	}
	probe := namespace("probe")
	if err := ip("netns", "add", probe); err != nil {
		t.Skipf("this machine makes no network namespaces: %v", err)
	}
	if err := ip("netns", "del", probe); err != nil {
		t.Fatal(err)
	}
}

func namespace(name string) string { return fmt.Sprintf("%s%d-%s", namespacePrefix, os.Getpid(), name) }

// address is that of the i-th end in the network.
func address(i int) string { return fmt.Sprintf("10.79.0.%d", 10+i) }

// startNetwork runs three coordinators and three workers until the test ends.
func startNetwork(t *testing.T, grace time.Duration) *network {
	t.Helper()
	needNamespaces(t)
	var hosts []string
	for i := range 6 {
		hosts = append(hosts, address(i))
	}
	n := &network{cluster: &cluster{t: t, dir: t.TempDir(), keys: newKeys(t, hosts...)}, hub: namespace("hub"), side: map[string]string{}}
	n.namespace("hub")
	for i := range sides {
		n.ip("-n", n.hub, "link", "add", "side"+strconv.Itoa(i), "type", "bridge")
		n.ip("-n", n.hub, "link", "set", "side"+strconv.Itoa(i), "up")
	}
	var raft, grpc []string
	for i := range 3 {
		raft, grpc = append(raft, address(i)+":7001"), append(grpc, address(i)+":7000")
	}
	var argv [][]string
	for i := range 6 {
		p := dev.Process{Role: "coordinator", Name: fmt.Sprintf("c%d", i+1)}
		p.Addresses.GRPC = address(i) + ":7000"
		if i >= 3 {
			p.Role, p.Name = "worker", fmt.Sprintf("w%d", i-2)
		}
		n.plug(p.Name, i)
		args := []string{p.Role, "--id", p.Name, "--dir", filepath.Join(n.dir, p.Name), "--listen", p.Addresses.GRPC, "--metrics", ""}
		if p.Role == "coordinator" {
			args = append(args, "--raft", raft[i], "--bootstrap-expect", "3", "--peers", strings.Join(raft, ","), "--grace", grace.String(),
				"--auth", "tokens", "--bootstrap-token-file", n.keys.token)
		} else {
			args = append(args, "--coordinators", strings.Join(grpc, ","), "--cores", "1")
		}
		argv = append(argv, append(args, n.keys.args(p.Role)...))
		n.procs = append(n.procs, p)
	}
	n.plug(theClient, len(n.procs))
	n.prefix = []string{"ip", "netns", "exec", namespace(theClient)}
	n.startAll(argv)
	text, err := json.Marshal(n.procs)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "processes.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	n.keys.env(filepath.Join(n.dir, "env"), grpc)
	n.answers()
	return n
}

func (n *network) ip(args ...string) {
	n.t.Helper()
	if err := ip(args...); err != nil {
		n.t.Fatal(err)
	}
}

// namespace makes a namespace that lasts as long as the test.
func (n *network) namespace(name string) {
	n.t.Helper()
	n.ip("netns", "add", namespace(name))
	n.t.Cleanup(func() {
		if err := ip("netns", "del", namespace(name)); err != nil {
			n.t.Error(err)
		}
	})
	n.ip("-n", namespace(name), "link", "set", "lo", "up")
}

// plug makes the namespace of a process with a cable to the hub.
func (n *network) plug(name string, i int) {
	n.t.Helper()
	n.namespace(name)
	n.ip("-n", n.hub, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", namespace(name))
	n.ip("-n", namespace(name), "addr", "add", address(i)+"/24", "dev", "eth0")
	n.ip("-n", namespace(name), "link", "set", "eth0", "up")
	n.ip("-n", n.hub, "link", "set", name, "up")
	n.move("side0", name)
}

// move plugs cables into a bridge, or into none.
func (n *network) move(bridge string, names ...string) {
	n.t.Helper()
	for _, name := range names {
		to := []string{"nomaster"}
		if bridge != "" {
			to = []string{"master", bridge}
		}
		n.ip(append([]string{"-n", n.hub, "link", "set", name}, to...)...)
		n.side[name] = bridge
	}
}

// nobody is the hardware address of no end.
const nobody = "02:00:00:00:00:01"

// deafen lets what one end sends to others get lost: they hear it no more, and it hears them.
func (n *network) deafen(from string, to ...string) {
	n.t.Helper()
	for _, name := range to {
		n.ip("-n", namespace(from), "neigh", "replace", n.addressOf(name), "lladdr", nobody, "dev", "eth0", "nud", "permanent")
		n.deaf = append(n.deaf, [2]string{from, name})
	}
}

func (n *network) addressOf(name string) string {
	n.t.Helper()
	for i, p := range n.procs {
		if p.Name == name {
			return address(i)
		}
	}
	n.t.Fatalf("there is no %s", name)
	return ""
}

// hear undoes deafen.
func (n *network) hear() {
	n.t.Helper()
	for _, d := range n.deaf {
		n.ip("-n", namespace(d[0]), "neigh", "del", n.addressOf(d[1]), "dev", "eth0")
	}
	n.deaf = nil
}

// heal plugs all cables into one bridge.
func (n *network) heal() {
	n.t.Helper()
	for name, side := range n.side {
		if side != "side0" {
			n.move("side0", name)
		}
	}
}

// startAll runs the processes until the test ends, however it ends.
func (n *network) startAll(argv [][]string) {
	n.t.Helper()
	started, stop, stopped := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		runtime.LockOSThread() // a child is told of the death of the thread that made it
		defer runtime.UnlockOSThread()
		var cmds []*exec.Cmd
		var err error
		for i := range argv {
			var log *os.File
			if log, err = os.Create(filepath.Join(n.dir, n.procs[i].Name+".log")); err != nil {
				break
			}
			defer log.Close()
			cmd := exec.Command("ip", append([]string{"netns", "exec", namespace(n.procs[i].Name), binary}, argv[i]...)...)
			cmd.Stdout, cmd.Stderr = log, log
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
			if err = cmd.Start(); err != nil {
				break
			}
			n.procs[i].PID = cmd.Process.Pid // ip becomes the program
			cmds = append(cmds, cmd)
		}
		started <- err
		<-stop
		for _, cmd := range cmds {
			cmd.Process.Kill()
		}
		for _, cmd := range cmds {
			cmd.Wait()
		}
	}()
	err := <-started
	n.t.Cleanup(func() {
		close(stop)
		<-stopped
		if n.t.Failed() {
			n.showLogs()
		}
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// cpu returns the time that a process has computed, in hundredths of a second.
func (n *network) cpu(name string) int {
	n.t.Helper()
	for _, p := range n.procs {
		if p.Name != name {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
		if err != nil {
			n.t.Fatal(err)
		}
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the state, field 3, comes first
		user, err1 := strconv.Atoi(f[11])
		system, err2 := strconv.Atoi(f[12])
		if err := errors.Join(err1, err2); err != nil {
			n.t.Fatal(err)
		}
		return user + system
	}
	n.t.Fatalf("there is no %s", name)
	return 0
}

// sampling submits a job and waits until every chain has as many draws.
func (n *network) sampling(spec string, draws int) (id string, j job) {
	n.t.Helper()
	id = n.submitAs(n.t.Name(), spec)
	n.until("every chain has draws", 3*time.Minute, func() bool {
		var ok bool
		j, ok = n.job(id)
		if ok && j.DrawsSHA256 != "" {
			n.t.Fatalf("the job is over: %+v", j)
		}
		for _, c := range j.Chains {
			ok = ok && c.Draws >= draws
		}
		return ok && len(j.Chains) > 0
	})
	return id, j
}

// in makes a subtest's failures its own.
func (n *network) in(t *testing.T) *network {
	c, m := *n.cluster, *n
	c.t = t
	m.cluster = &c
	return &m
}

// mustLead returns the name of the leader, once there is one.
func (n *network) mustLead() string {
	n.t.Helper()
	var name string
	n.until("a leader", 3*time.Minute, func() bool {
		p, ok := n.leader()
		name = p.Name
		return ok
	})
	return name
}

// partitionSpec is a job of a few seconds whose chains have many checkpoints.
const partitionSpec = `
name: partition
data: {synthetic: {n: %d, d: 2, sigma: 1, tau: 0.3, lambda: 0.05, seed: 7}}
sampler: {method: fisher, chains: 4, warmup: 20, draws: %d, checkpoint: 5}
solver: {tolerance: 1e-6, preconditioner: {kind: rpcholesky}}
stop: {rhat: 1.01, ess: 1e9, max_draws: %d, max_time: 1h}
seed: 3
`

// One way of a link is lost. The first of these is tried always.
var oneWay = []struct {
	name    string
	cut     func(n *network, leader string, followers []string)
	another bool // has to lead
}{
	{"the leader is not heard", func(n *network, l string, f []string) { n.deafen(l, f...) }, true},
	{"the leader does not hear", func(n *network, l string, f []string) { n.deafen(f[0], l); n.deafen(f[1], l) }, true},
	{"one follower does not hear the leader", func(n *network, l string, f []string) { n.deafen(l, f[0]) }, false},
	{"the leader does not hear one follower", func(n *network, l string, f []string) { n.deafen(f[0], l) }, false},
	{"a worker is not heard by the leader", func(n *network, l string, _ []string) { n.deafen("w1", l) }, false},
	{"a worker does not hear the leader", func(n *network, l string, _ []string) { n.deafen(l, "w1") }, false},
}

// serves submits a job while some hear others who do not hear them, and lets it end meanwhile.
func (n *network) serves(cut func(n *network, leader string, followers []string), another bool, spec, want string) {
	n.t.Helper()
	const most = 5 * time.Minute
	old := n.mustLead()
	var followers []string
	for _, p := range n.processes("coordinator") {
		if p.Name != old {
			followers = append(followers, p.Name)
		}
	}
	cut(n, old, followers)
	defer n.hear()
	if another {
		n.until("another leader", 3*time.Minute, func() bool {
			p, ok := n.leader()
			return ok && p.Name != old
		})
	}
	var id string // the work goes on meanwhile
	n.until("a job is taken", 3*time.Minute, func() bool {
		out, err := n.run("submit", n.file("small.yaml", spec), "--json", "--client-id", n.t.Name())
		var j job
		if err != nil || json.Unmarshal([]byte(out), &j) != nil {
			return false
		}
		id = j.ID
		return true
	})
	n.ends(id, want, most)
	n.hear()
	n.until("all are well", 3*time.Minute, func() bool {
		_, voters := n.members()
		return len(voters) == 3
	})
}

// The network falls apart and is healed: the draws are those of ulisse run.
func TestPartitions(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: a minute")
	}
	needNamespaces(t)
	t.Parallel() // it mostly waits
	draws := 150
	spec := fmt.Sprintf(partitionSpec, 400, draws, draws)
	want := undisturbed(t, spec)
	const most = 5 * time.Minute

	t.Run("hasty", func(t *testing.T) { // a worker that is silent is soon replaced
		hasty := startNetwork(t, 2*time.Second)
		t.Run("leader in the minority", func(t *testing.T) {
			n := hasty.in(t)
			id, _ := n.sampling(spec, 5)
			old := n.mustLead()
			n.move("side1", old)
			n.until("another leader", 3*time.Minute, func() bool {
				p, ok := n.leader()
				return ok && p.Name != old
			})
			n.heal()
			n.ends(id, want, most)
		})
		t.Run("worker cut off for longer than the grace", func(t *testing.T) {
			n := hasty.in(t)
			id, j := n.sampling(spec, 5)
			lost := j.Chains[0].Worker
			n.move("", lost)
			n.until("another driver", 3*time.Minute, func() bool {
				j, ok := n.job(id)
				return ok && (j.Chains[0].Worker != "" && j.Chains[0].Worker != lost || j.DrawsSHA256 != "")
			})
			n.heal()
			n.ends(id, want, most)
		})
		t.Run("everybody alone", func(t *testing.T) {
			n := hasty.in(t)
			id, _ := n.sampling(spec, 5)
			for name := range n.side {
				n.move("", name)
			}
			time.Sleep(5 * time.Second) // nobody can be asked; the leader has stepped down long before
			n.heal()
			n.ends(id, want, most)
		})
		small := fmt.Sprintf(recoverSpec, "small", 20, 20)
		smallWant := undisturbed(t, small)
		for i, c := range oneWay {
			if i == 0 || thorough() {
				t.Run(c.name, func(t *testing.T) { hasty.in(t).serves(c.cut, c.another, small, smallWant) })
			}
		}
	})
	wide := fmt.Sprintf(partitionSpec, 1000, draws, draws)
	wideWant := undisturbed(t, wide)
	const beats = 10                      // hundredths of a second in a second: signs of life and attempts to connect
	t.Run("patient", func(t *testing.T) { // a worker that is silent keeps its chains
		n := startNetwork(t, time.Hour)
		t.Run("driver cut off from the quorum", func(t *testing.T) {
			n := n.in(t)
			id, j := n.sampling(wide, 5)
			cut, attempt := j.Chains[0].Worker, j.Chains[0].Attempt
			// It goes on, as far as its buffer goes; then it waits. How far depends on
			// where it stands: at a barrier it has nothing to do, so it is cut off again
			// until it has been seen at work.
			for did := 0; did < 2*beats; {
				n.move("", cut)
				at := n.cpu(cut)
				last := at
				n.until("the driver waits", 3*time.Minute, func() bool {
					before := last
					time.Sleep(time.Second)
					last = n.cpu(cut)
					return last-before < beats
				})
				did = last - at
				t.Logf("%s computed %.2f s more, then waited", cut, float64(did)/100)
				n.heal()
				n.until("the driver reports", 3*time.Minute, func() bool {
					now, ok := n.job(id)
					if !ok {
						return false
					}
					if now.DrawsSHA256 != "" {
						t.Fatal("the job was over before its driver was cut off at work")
					}
					before := j
					j = now
					if j.Chains[0].Worker != cut || j.Chains[0].Attempt != attempt {
						t.Fatalf("the chain was given away: %+v", j.Chains[0])
					}
					return j.Chains[0].Draws > before.Chains[0].Draws
				})
			}
			n.ends(id, wideWant, most)
		})
	})
}
