package kube

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What a node is made of, beside the binaries of hack/kubebox.sh: from Debian's
// packages, installed or unpacked into $KUBEBOX_BIN/debian.
type debian struct{ containerd, ctr, runc, cni string }

func findDebian(t *testing.T) debian {
	t.Helper()
	root := filepath.Join(os.Getenv("KUBEBOX_BIN"), "debian")
	find := func(path string) string {
		for _, p := range []string{filepath.Join(root, path), "/" + path} {
			if _, err := os.Stat(p); err == nil {
				return p
			}
		}
		t.Skipf("there is no /%s: install containerd, runc and containernetworking-plugins, or run hack/kubebox.sh", path)
		return ""
	}
	return debian{find("usr/bin/containerd"), find("usr/bin/ctr"), find("usr/sbin/runc"), find("usr/lib/cni")}
}

// The network of the pods: a bridge in the namespace of the test.
const (
	bridge  = "cni0"
	gateway = "10.244.0.1"
	subnet  = "10.244.0.0/24"
)

// isolate runs the calling test again as the first process of new namespaces, so
// that all that it starts, mounts and plugs in ends with it. It returns false in
// the outer process, when the test is over.
func isolate(t *testing.T) bool {
	t.Helper()
	if os.Getenv("KUBE_DIR") != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("a kubelet is root's to run")
	}
	for _, p := range []string{"unshare", "ip", "nsenter", "mount"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("there is no %s: install util-linux and iproute2", p)
		}
	}
	// Not t.TempDir: unix sockets have short names.
	dir, err := os.MkdirTemp("", "kube")
	if err != nil {
		t.Fatal(err)
	}
	before := cgroups()
	c := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--net", "--fork", "--kill-child=SIGKILL", "--mount-proc",
		os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$", "-test.timeout=40m")
	c.Env = append(os.Environ(), "KUBE_DIR="+dir)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Run(); err != nil {
		t.Errorf("in namespaces of its own: %v", err)
	}
	for g := range cgroups() {
		if !before[g] {
			removeCgroup(g)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
	return false
}

// cgroups are the groups at the top of each hierarchy.
func cgroups() map[string]bool {
	out := map[string]bool{}
	for _, pattern := range []string{"/sys/fs/cgroup/k8s.io", "/sys/fs/cgroup/*/k8s.io"} {
		groups, _ := filepath.Glob(pattern)
		for _, g := range groups {
			out[g] = true
		}
	}
	return out
}

// removeCgroup removes a group whose processes are gone, from its leaves up.
func removeCgroup(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeCgroup(filepath.Join(dir, e.Name()))
		}
	}
	_ = os.Remove(dir)
}

func sh(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// startNode starts a name server, containerd and a kubelet, and waits for the node.
func (p *plane) startNode(images ...string) {
	t := p.t
	t.Helper()
	d := findDebian(t)
	sh(t, "mount", "-t", "tmpfs", "tmpfs", "/run") // containerd's shims have their sockets there
	sh(t, "ip", "link", "add", bridge, "type", "bridge")
	sh(t, "ip", "addr", "add", gateway+"/24", "dev", bridge)
	sh(t, "ip", "link", "set", bridge, "up")
	resolv := p.write("resolv.conf", []byte("nameserver "+gateway+"\nsearch ulisse.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"))
	none := p.write("resolv.none", nil)
	if target, err := filepath.EvalSymlinks("/etc/resolv.conf"); err == nil {
		sh(t, "mount", "--bind", resolv, target) // the test's own clients look names up as pods do
	}
	p.serveNames(gateway + ":53")
	p.write("cni/10-bridge.conflist", fmt.Appendf(nil, `{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": %q, "isGateway": true, "ipMasq": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "dataDir": %q, "routes": [{"dst": "0.0.0.0/0"}]}}]}
`, bridge, subnet, filepath.Join(p.dir, "ipam")))
	socket := filepath.Join(p.dir, "containerd.sock")
	p.start("containerd", d.containerd, "--config", p.write("containerd.toml", fmt.Appendf(nil, `version = 2
root = %[1]q
state = "/run/containerd"
[grpc]
  address = %[2]q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "local/pause:1"
  restrict_oom_score_adj = true
  enable_unprivileged_ports = false
  enable_unprivileged_icmp = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[3]q
    conf_dir = %[4]q
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = %[5]q
`, filepath.Join(p.dir, "containerd"), socket, d.cni, filepath.Join(p.dir, "cni"), d.runc)))
	p.wait("containerd", func() error {
		return exec.Command(d.ctr, "-a", socket, "version").Run()
	})
	for _, i := range append(images, p.pauseImage()) {
		sh(t, d.ctr, "-a", socket, "-n", "k8s.io", "images", "import", i)
	}
	p.start("kubelet", p.bin("kubelet"), "--kubeconfig="+p.kubeconfig, "--root-dir="+filepath.Join(p.dir, "kubelet"), "--hostname-override=vm",
		"--node-ip="+gateway, "--cert-dir="+filepath.Join(p.dir, "pki"), "--config="+p.write("kubelet.yaml", fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
containerRuntimeEndpoint: unix://%s
clusterDNS: [%s]
clusterDomain: cluster.local
resolvConf: %s
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
evictionHard: {memory.available: 1Mi}
syncFrequency: 5s
`, socket, gateway, none)))
	p.wait("the node", func() error {
		out, err := p.try("", "get", "node", "vm", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err == nil && out != "True" {
			err = errors.New("not ready: " + out)
		}
		return err
	})
}

// pauseImage builds the image that holds pods' namespaces.
func (p *plane) pauseImage() string {
	p.t.Helper()
	binary := filepath.Join(p.dir, "pause")
	c := exec.Command("go", "build", "-ldflags", "-s -w", "-o", binary, "./testdata/pause")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		p.t.Fatal(err)
	}
	pack := func(files ...any) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := 0; i < len(files); i += 2 {
			data := files[i+1].([]byte)
			if err := errors.Join(w.WriteHeader(&tar.Header{Name: files[i].(string), Mode: 0o755, Size: int64(len(data))}), func() error { _, err := w.Write(data); return err }()); err != nil {
				p.t.Fatal(err)
			}
		}
		w.Close()
		return b.Bytes()
	}
	layer := pack("pause", program)
	config, err := json.Marshal(map[string]any{"architecture": goarch(p.t), "os": "linux", "config": map[string]any{"Entrypoint": []string{"/pause"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}}})
	if err != nil {
		p.t.Fatal(err)
	}
	return p.write("pause.tar", pack("layer.tar", layer, "config.json", config,
		"manifest.json", []byte(`[{"Config": "config.json", "RepoTags": ["local/pause:1"], "Layers": ["layer.tar"]}]`)))
}

func goarch(t *testing.T) string {
	return strings.TrimSpace(sh(t, "go", "env", "GOARCH"))
}
