package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// node is a fake one: kwok says that it is well, and that pods run there.
const node = `
apiVersion: v1
kind: Node
metadata:
  name: %[1]s
  annotations: {kwok.x-k8s.io/node: fake}
  labels: {kubernetes.io/hostname: %[1]s, topology.kubernetes.io/zone: %[2]s}
status:
  allocatable: {cpu: "32", memory: 256Gi, ephemeral-storage: 1Ti, pods: "110"}
  capacity: {cpu: "32", memory: 256Gi, ephemeral-storage: 1Ti, pods: "110"}
---
`

const (
	fakeNodes = 4
	fakeZones = 3
)

// TestFakeNodes is tier 2: what Kubernetes' controllers and its scheduler make of
// three coordinators and an autoscaler, on nodes whose pods do nothing. The metric that scales the
// workers is that of a real coordinator.
func TestFakeNodes(t *testing.T) {
	needTier(t, 2)
	kwok := program(t, "kwok")
	program(t, "kube-controller-manager")
	program(t, "kube-scheduler")
	p := startPlane(t)
	p.manage()
	p.start("kwok", kwok, "--kubeconfig="+p.kubeconfig, "--manage-all-nodes=true", "--config="+program(t, "stages.yaml"),
		"--node-lease-duration-seconds=40", "--node-ip=10.0.0.1", "--cidr=10.244.0.0/16", "--server-address="+freeAddress(t))
	var nodes strings.Builder
	for i := range fakeNodes {
		fmt.Fprintf(&nodes, node, fmt.Sprint("node-", i), fmt.Sprint("zone-", i%fakeZones))
	}
	p.do(nodes.String(), "apply", "-f", "-")
	for i := range 5 {
		p.do(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: v%d}, spec: {capacity: {storage: 20Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /v%d}}}`, i, i), "apply", "-f", "-")
	}
	p.do("", "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")

	began := time.Now()
	p.do(string(kustomize(t, "testdata/fake")), "apply", "-f", "-")
	p.do("", "-n", "ulisse", "rollout", "status", "statefulset/ulisse-coordinator", "--timeout=120s")
	p.do("", "-n", "ulisse", "rollout", "status", "deployment/ulisse-worker", "--timeout=120s")
	p.since("from apply until all pods are ready", began)
	if zones := p.zones("coordinator"); len(zones) != fakeZones {
		t.Errorf("three coordinators are in the zones %v", zones)
	}

	t.Run("autoscaler", p.autoscales)
	t.Run("drain", p.drains)
	t.Run("upgrade", p.upgrades)
	t.Run("coordinators", p.scalesCoordinators)
}

// in returns the plane as a part of the test uses it.
func (p *plane) in(t *testing.T) *plane {
	q := *p
	q.t = t
	return &q
}

// zones counts the pods of a component by zone.
func (p *plane) zones(component string) map[string]int {
	p.t.Helper()
	out := map[string]int{}
	for name := range strings.FieldsSeq(p.do("", "-n", "ulisse", "get", "pods", "-l", "app.kubernetes.io/component="+component, "-o", "jsonpath={.items[*].spec.nodeName}")) {
		i, err := strconv.Atoi(strings.TrimPrefix(name, "node-"))
		if err != nil {
			p.t.Fatal(err)
		}
		out[fmt.Sprint("zone-", i%fakeZones)]++
	}
	return out
}

// number reads a number from an object, 0 if it is not there.
func (p *plane) number(object, path string) int {
	p.t.Helper()
	n, _ := strconv.Atoi(p.do("", "-n", "ulisse", "get", object, "-o", "jsonpath="+path))
	return n
}

// autoscales: jobs come and go at a coordinator, and workers follow, 3, 12, 3.
func (p *plane) autoscales(t *testing.T) {
	p = p.in(t)
	binary := filepath.Join(p.dir, "ulisse")
	build := exec.Command("go", "build", "-o", binary, "./cmd/ulisse")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rpcs, metrics := freeAddress(t), freeAddress(t)
	p.start("coordinator", binary, "coordinator", "--id=a", "--dir="+filepath.Join(p.dir, "coordinator"), "--listen="+rpcs, "--raft="+freeAddress(t),
		"--http=", "--metrics="+metrics, "--disk-reserve=1")
	wanted := func() (int, error) {
		b, err := get("http://" + metrics + "/workers-wanted")
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(string(b)))
	}
	p.wait("the coordinator", func() error { _, err := wanted(); return err })
	port := adapter(t, wanted)
	p.do(fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: external-metrics, namespace: kube-system}
spec: {type: ExternalName, externalName: localhost, ports: [{port: %[1]s}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.external.metrics.k8s.io}
spec:
  group: external.metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: external-metrics, namespace: kube-system, port: %[1]s}
`, port), "apply", "-f", "-")
	// The rule of the manifest waits five minutes before it takes workers away.
	p.do("", "-n", "ulisse", "patch", "hpa", "ulisse-worker", "--type=merge", "-p",
		`{"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 1}]}}}}`)

	ulisse := func(args ...string) []byte {
		c := exec.Command(binary, args...)
		c.Env = append(os.Environ(), "ULISSE_COORDINATORS="+rpcs)
		out, err := c.Output()
		if err != nil {
			t.Fatalf("ulisse %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return out
	}
	submit := func(name string, chains int) string {
		file := p.write(name+".yaml", fmt.Appendf(nil, "name: %s\ndata: {synthetic: {n: 4000, d: 2, sigma: 1, tau: 0.3, lambda: 0.05, seed: 5}}\nsampler: {method: fisher, chains: %d}\n", name, chains))
		var j job
		if err := json.Unmarshal(ulisse("submit", file, "--json"), &j); err != nil {
			t.Fatal(err)
		}
		return j.ID
	}
	until := func(n int) {
		t.Helper()
		began := time.Now()
		p.wait(fmt.Sprint(n, " workers"), func() error {
			if got := p.number("deployment/ulisse-worker", "{.status.readyReplicas}"); got != n {
				w, err := wanted()
				return fmt.Errorf("%d are ready; %d are wanted (%v)", got, w, err)
			}
			return nil
		})
		p.since(fmt.Sprint(n, " workers are ready"), began)
	}
	submit("small", 3)
	until(3)
	large := submit("large", 9)
	until(12)
	ulisse("cancel", large)
	until(3)
}

// adapter serves a number to Kubernetes as the external metric of the manifests,
// and returns its port: what prometheus-adapter does from Prometheus.
func adapter(t *testing.T, wanted func() (int, error)) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "adapter"}, DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	const api = "/apis/external.metrics.k8s.io/v1beta1"
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	type m = map[string]any
	mux.HandleFunc(api, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, m{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "external.metrics.k8s.io/v1beta1",
			"resources": []m{{"name": "ulisse_workers_wanted", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": []string{"get"}}}})
	})
	mux.HandleFunc(api+"/namespaces/{namespace}/ulisse_workers_wanted", func(w http.ResponseWriter, r *http.Request) {
		n, err := wanted()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		answer(w, m{"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": m{},
			"items": []m{{"metricName": "ulisse_workers_wanted", "metricLabels": m{}, "timestamp": time.Now().UTC().Format(time.RFC3339), "value": strconv.Itoa(n)}}})
	})
	s := &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, ReadHeaderTimeout: time.Minute}
	go s.ServeTLS(l, "", "")
	t.Cleanup(func() { s.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// watch looks at the coordinators until stopped, and returns the fewest that were
// ready, and how often it looked.
func (p *plane) watch() (stop func() (fewest, looks int)) {
	done, ended := make(chan struct{}), make(chan struct{})
	fewest, looks := 99, 0
	go func() {
		defer close(ended)
		for {
			out, err := p.try("", "-n", "ulisse", "get", "pods", "-l", "app.kubernetes.io/component=coordinator",
				"-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
			if err == nil {
				fewest, looks = min(fewest, strings.Count(out, "True")), looks+1
			}
			select {
			case <-done:
				return
			default:
			}
		}
	}()
	var once sync.Once
	stop = func() (int, int) {
		once.Do(func() { close(done) })
		<-ended
		return fewest, looks
	}
	p.t.Cleanup(func() { stop() })
	return stop
}

// drains: every node in turn is emptied, under the disruption budgets, and a
// majority of coordinators is there all the time.
func (p *plane) drains(t *testing.T) {
	p = p.in(t)
	began := time.Now()
	stop := p.watch()
	for i := range fakeNodes {
		name := fmt.Sprint("node-", i)
		if _, err := p.try("", "drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s"); err != nil {
			t.Fatal(err)
		}
		p.settled()
		left := p.do("", "-n", "ulisse", "get", "pods", "--field-selector=spec.nodeName="+name, "-o", "name")
		if left != "" {
			t.Errorf("%s still has %s", name, left)
		}
		p.do("", "uncordon", name)
	}
	if fewest, looks := stop(); fewest < 2 || looks < 10 {
		t.Errorf("only %d coordinators were ready at a time (%d looks)", fewest, looks)
	}
	p.since("all nodes are drained, one after the other", began)
}

// settled waits until all pods that shall be there are ready.
func (p *plane) settled() {
	p.t.Helper()
	p.do("", "-n", "ulisse", "rollout", "status", "statefulset/ulisse-coordinator", "--timeout=120s")
	p.do("", "-n", "ulisse", "rollout", "status", "deployment/ulisse-worker", "--timeout=120s")
}

// upgrades: a new image replaces one coordinator at a time, and workers without
// one less.
func (p *plane) upgrades(t *testing.T) {
	p = p.in(t)
	began := time.Now()
	stop := p.watch()
	next := strings.ReplaceAll(string(kustomize(t, "testdata/fake")), "ghcr.io/ulisse-gp/ulisse:"+release, "ghcr.io/ulisse-gp/ulisse:0.2.0")
	p.do(next, "apply", "-f", "-")
	p.settled()
	if fewest, _ := stop(); fewest < 2 {
		t.Errorf("only %d coordinators were ready at a time", fewest)
	}
	images := p.do("", "-n", "ulisse", "get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}")
	if strings.Contains(images, ":"+release) || strings.Count(images, ":0.2.0") < 4 {
		t.Errorf("images after the upgrade: %s", images)
	}
	if got := p.number("deployment/ulisse-worker", "{.spec.replicas}"); got != 3 {
		t.Errorf("an apply beside the autoscaler left %d workers", got)
	}
	p.since("rolling upgrade", began)
}

// scalesCoordinators: five for three, and no pod is restarted for it.
func (p *plane) scalesCoordinators(t *testing.T) {
	p = p.in(t)
	uids := func() string {
		return p.do("", "-n", "ulisse", "get", "pods", "ulisse-coordinator-0", "ulisse-coordinator-1", "ulisse-coordinator-2", "-o", "jsonpath={.items[*].metadata.uid}")
	}
	before := uids()
	p.do("", "-n", "ulisse", "scale", "statefulset/ulisse-coordinator", "--replicas=5")
	p.do("", "-n", "ulisse", "patch", "configmap", "ulisse", "--type=merge", "-p", `{"data": {"founders": "5"}}`)
	p.settled()
	p.wait("five coordinators", func() error {
		if n := p.number("statefulset/ulisse-coordinator", "{.status.readyReplicas}"); n != 5 {
			return errors.New(strconv.Itoa(n))
		}
		return nil
	})
	if uids() != before {
		t.Error("scaling restarted coordinators")
	}
}
