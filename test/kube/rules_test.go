package kube

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestPods holds every template of pods against what a pod of ours must be.
func TestPods(t *testing.T) {
	onEach(t, func(t *testing.T, o *objects) {
		if len(o.workloads()) != 2 {
			t.Fatalf("%d workloads, not the coordinators and the workers", len(o.workloads()))
		}
		for _, w := range o.workloads() {
			p := w.pod
			need := func(ok bool, what string) {
				t.Helper()
				if !ok {
					t.Errorf("%s: %s", w.name, what)
				}
			}
			need(selects(t, w.selector, w.labels), "its selector does not select its own pods")
			need(p.AutomountServiceAccountToken != nil && !*p.AutomountServiceAccountToken, "pods get a service account's token")
			need(p.EnableServiceLinks != nil && !*p.EnableServiceLinks, "pods get the addresses of all services as variables")
			need(p.SecurityContext != nil && p.SecurityContext.SeccompProfile != nil &&
				p.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault, "no seccomp profile")
			need(p.SecurityContext.RunAsNonRoot != nil && *p.SecurityContext.RunAsNonRoot, "may run as root")
			need(len(p.TopologySpreadConstraints) > 0, "nothing spreads the pods")
			for _, c := range p.TopologySpreadConstraints {
				need(c.WhenUnsatisfiable == corev1.ScheduleAnyway, "a hard spread leaves pods pending when a zone is drained")
				need(selects(t, c.LabelSelector, w.labels), "the spread counts other pods")
			}
			need(len(p.Containers) == 1, "one container")
			c := p.Containers[0]
			s := c.SecurityContext
			need(s != nil && s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem, "the root file system can be written")
			need(s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation, "privileges can be gained")
			need(s.Capabilities != nil && slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(s.Capabilities.Add) == 0, "capabilities")
			need(s.RunAsUser != nil && *s.RunAsUser > 10_000, "a user id that a node may have")
			for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
				_, requested := c.Resources.Requests[r]
				_, limited := c.Resources.Limits[r]
				need(requested && limited, "no request or limit of "+string(r))
			}
			need(strings.Contains(c.Image, ":") && !strings.HasSuffix(c.Image, ":latest"), "the image "+c.Image+" has no version")
			mounted(t, w)
		}
	})
}

func selects(t *testing.T, s *metav1.LabelSelector, l map[string]string) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return !selector.Empty() && selector.Matches(labels.Set(l))
}

// mounted holds the mounts of a pod against its volumes.
func mounted(t *testing.T, w workload) {
	t.Helper()
	var volumes []string
	for _, v := range w.pod.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, m := range w.pod.Containers[0].VolumeMounts {
		if m.Name != "state" && !slices.Contains(volumes, m.Name) {
			t.Errorf("%s mounts %s, which is no volume", w.name, m.Name)
		}
	}
}

// TestProbes: three probes that ask different things, on a port that is there.
// Liveness must not ask for a leader.
func TestProbes(t *testing.T) {
	onEach(t, func(t *testing.T, o *objects) {
		for _, w := range o.workloads() {
			c := w.pod.Containers[0]
			paths := map[string]bool{}
			for kind, p := range map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
				if p == nil || p.HTTPGet == nil {
					t.Errorf("%s: no %s probe over HTTP", w.name, kind)
					continue
				}
				paths[p.HTTPGet.Path] = true
				if !slices.ContainsFunc(c.Ports, func(q corev1.ContainerPort) bool { return q.Name == p.HTTPGet.Port.String() }) {
					t.Errorf("%s: the %s probe asks port %s, which is not there", w.name, kind, p.HTTPGet.Port.String())
				}
			}
			if c.LivenessProbe.HTTPGet.Path != "/livez" || c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.StartupProbe.HTTPGet.Path != "/startupz" {
				t.Errorf("%s: probes ask %v", w.name, paths)
			}
			if d := time.Duration(c.LivenessProbe.PeriodSeconds*c.LivenessProbe.FailureThreshold) * time.Second; d < 30*time.Second {
				t.Errorf("%s: a process that is busy for %v is killed", w.name, d)
			}
		}
		start := o.sets["ulisse-coordinator"].Spec.Template.Spec.Containers[0].StartupProbe
		if d := time.Duration(start.PeriodSeconds*start.FailureThreshold) * time.Second; d < 15*time.Minute {
			t.Errorf("a coordinator has %v to open its state", d)
		}
	})
}

// TestCoordinators: names that stay, a cluster that can be founded, and found.
func TestCoordinators(t *testing.T) {
	onEach(t, func(t *testing.T, o *objects) {
		set := o.sets["ulisse-coordinator"]
		if set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
			t.Errorf("pods start %s: the first would wait forever for the others", set.Spec.PodManagementPolicy)
		}
		head := o.services[set.Spec.ServiceName]
		if head == nil || head.Spec.ClusterIP != "None" || !head.Spec.PublishNotReadyAddresses {
			t.Errorf("the service %q is not headless, or hides who is not ready: %+v", set.Spec.ServiceName, head)
		}
		if len(set.Spec.VolumeClaimTemplates) != 1 {
			t.Error("the state is on no volume of its own")
		}
		args := set.Spec.Template.Spec.Containers[0].Args
		for _, want := range []string{"--id=$(POD_NAME)", "--advertise=$(POD_NAME)." + set.Spec.ServiceName + ".$(POD_NAMESPACE).svc:7000",
			"--raft-advertise=$(POD_NAME)." + set.Spec.ServiceName + ".$(POD_NAMESPACE).svc:7001", "--bootstrap-expect=$(FOUNDERS)",
			"--bootstrap-index=$(POD_INDEX)"} {
			if !slices.Contains(args, want) {
				t.Errorf("no %s in %v", want, args)
			}
		}
		founders := o.configs["ulisse"].Data["founders"]
		if n, err := strconv.Atoi(founders); err != nil || int32(n) != *set.Spec.Replicas || n%2 == 0 {
			t.Errorf("%q founders, %d replicas", founders, *set.Spec.Replicas)
		}
		var names []string
		for i := range *set.Spec.Replicas {
			names = append(names, set.Name+"-"+strconv.Itoa(int(i))+"."+set.Spec.ServiceName+":7000")
		}
		if got := o.configs["ulisse"].Data["coordinators"]; got != strings.Join(names, ",") {
			t.Errorf("workers look for %q, coordinators are %q", got, names)
		}
		// Scaling must not change the template, or it restarts every pod.
		for _, a := range args {
			if strings.Contains(a, names[len(names)-1]) || strings.HasSuffix(a, "="+founders) {
				t.Errorf("the template depends on the number of replicas: %s", a)
			}
		}
		for _, s := range o.services {
			for _, p := range s.Spec.Ports {
				if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(set.Spec.Template.Labels)) ||
					!slices.ContainsFunc(set.Spec.Template.Spec.Containers[0].Ports, func(q corev1.ContainerPort) bool { return q.Name == p.TargetPort.String() }) {
					t.Errorf("service %s, port %s: no such port in the pods it selects", s.Name, p.Name)
				}
			}
		}
	})
}

// TestGrace: pods get more time to end than they take.
func TestGrace(t *testing.T) {
	onEach(t, func(t *testing.T, o *objects) {
		w := o.deploys["ulisse-worker"].Spec.Template.Spec
		var drain time.Duration
		for _, e := range w.Containers[0].Env {
			if e.Name == "DRAIN_TIME" {
				drain, _ = time.ParseDuration(e.Value)
			}
		}
		const stop = 5 * time.Second // server.stopMost
		if grace := time.Duration(*w.TerminationGracePeriodSeconds) * time.Second; drain == 0 || grace < drain+stop {
			t.Errorf("workers have %v to end and take %v and %v", grace, drain, stop)
		}
		c := o.sets["ulisse-coordinator"].Spec.Template.Spec
		sleep := c.Containers[0].Lifecycle.PreStop.Sleep
		if sleep == nil || sleep.Seconds < 1 {
			t.Fatal("coordinators do not wait until the endpoints know that they go")
		}
		if grace, most := *c.TerminationGracePeriodSeconds, sleep.Seconds+2*int64(stop.Seconds()); grace < most+10 {
			t.Errorf("coordinators have %d s to end and take up to %d", grace, most)
		}
	})
}

// TestAutoscalers: what ha needs is in every cluster; where Prometheus is, workers
// follow what coordinators say.
func TestAutoscalers(t *testing.T) {
	for overlay, metric := range map[string]autoscalingv2.MetricSourceType{"ha": autoscalingv2.ResourceMetricSourceType, "spot": autoscalingv2.ResourceMetricSourceType,
		"monitoring": autoscalingv2.ExternalMetricSourceType} {
		if o := decode(t, render(t, overlay)); len(o.scalers) != 1 || o.scalers[0].Spec.Metrics[0].Type != metric {
			t.Errorf("%s does not scale by %s", overlay, metric)
		}
	}
	if o := decode(t, render(t, "single")); len(o.scalers) != 0 || *o.deploys["ulisse-worker"].Spec.Replicas != 1 {
		t.Error("single has an autoscaler, or not one worker")
	}
}

// TestScaling: who is scaled by an autoscaler has no replicas of its own, and
// the autoscaler asks for what coordinators say.
func TestScaling(t *testing.T) {
	onEach(t, func(t *testing.T, o *objects) {
		for _, h := range o.scalers {
			d := o.deploys[h.Spec.ScaleTargetRef.Name]
			if d == nil {
				t.Fatalf("%s scales %s, which is not there", h.Name, h.Spec.ScaleTargetRef.Name)
			}
			if d.Spec.Replicas != nil {
				t.Errorf("%s has replicas and an autoscaler: each apply would undo its work", d.Name)
			}
			for _, m := range h.Spec.Metrics {
				wanted := m.External != nil && m.External.Metric.Name == "ulisse_workers_wanted" && m.External.Target.AverageValue.Value() == 1
				busy := m.Resource != nil && m.Resource.Name == corev1.ResourceCPU && *m.Resource.Target.AverageUtilization < 90
				if !wanted && !busy {
					t.Errorf("%s: %+v", h.Name, m)
				}
			}
		}
	})
}

// TestBudgetsAndPolicies: every pod has one budget and one policy at least, and
// no budget forbids every eviction.
func TestBudgetsAndPolicies(t *testing.T) {
	onEach(t, func(t *testing.T, o *objects) {
		for _, w := range o.workloads() {
			budgets := 0
			for _, b := range o.budgets {
				if selects(t, b.Spec.Selector, w.labels) {
					budgets++
					if m := b.Spec.MaxUnavailable; m == nil || *m == intstr.FromInt32(0) || m.String() == "0%" {
						t.Errorf("%s lets nobody go", b.Name)
					}
				}
			}
			if budgets != 1 {
				t.Errorf("%s has %d disruption budgets", w.name, budgets)
			}
			in, out := false, false
			for _, p := range o.policies {
				if !selects(t, &p.Spec.PodSelector, w.labels) {
					continue
				}
				for _, k := range p.Spec.PolicyTypes {
					in, out = in || k == "Ingress", out || k == "Egress"
				}
				for _, rule := range p.Spec.Ingress {
					for _, port := range rule.Ports {
						if port.Port.Type == intstr.String && !slices.ContainsFunc(w.pod.Containers[0].Ports, func(c corev1.ContainerPort) bool { return c.Name == port.Port.StrVal }) {
							t.Errorf("policy %s opens port %s, which %s does not have", p.Name, port.Port.StrVal, w.name)
						}
					}
				}
			}
			if !in || !out {
				t.Errorf("%s: ingress limited: %v, egress: %v", w.name, in, out)
			}
		}
	})
}

// TestNamespace: everything is in one namespace, which admits only restricted
// pods.
func TestNamespace(t *testing.T) {
	onEach(t, func(t *testing.T, o *objects) {
		if len(o.namespaces) != 1 || o.namespaces[0].Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
			t.Fatalf("namespaces %v", o.namespaces)
		}
		for _, v := range o.all {
			if _, ok := v.(*corev1.Namespace); !ok && v.GetNamespace() != o.namespaces[0].Name {
				t.Errorf("%s is in the namespace %q", v.GetName(), v.GetNamespace())
			}
		}
	})
}

// TestFlags: every flag in the manifests is one that the program has.
func TestFlags(t *testing.T) {
	reference, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`--[a-z-]+`)
	onEach(t, func(t *testing.T, o *objects) {
		for _, w := range o.workloads() {
			args := w.pod.Containers[0].Args
			_, section, found := strings.Cut(string(reference), "## ulisse "+args[0]+"\n")
			if !found {
				t.Fatalf("%s runs 'ulisse %s', which docs/cli.md does not have", w.name, args[0])
			}
			section, _, _ = strings.Cut(section, "\n## ")
			known := flag.FindAllString(section, -1)
			for _, a := range args[1:] {
				if !slices.Contains(known, flag.FindString(a)) {
					t.Errorf("%s: 'ulisse %s' has no %s", w.name, args[0], a)
				}
			}
		}
	})
}

// TestExamples: what is there to copy is decoded as strictly.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(deploy, "examples", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if o := decode(t, b); len(o.all)+len(o.foreign) == 0 {
			t.Errorf("%s holds nothing", f)
		}
		// What serves others, or runs by itself, shows nobody's certificate, and has no administrator's token.
		for line := range strings.Lines(string(b)) {
			text, _, _ := strings.Cut(strings.TrimSpace(line), "# ")
			for _, secret := range []string{"ulisse-client-tls", "ulisse-coordinator-tls", "ulisse-worker-tls", "ulisse-admin-token"} {
				if strings.Contains(text, secret) && !strings.HasPrefix(text, "#") {
					t.Errorf("%s uses the Secret %s: %s", f, secret, text)
				}
			}
		}
	}
	decode(t, kustomize(t, filepath.Join(deploy, "examples", "oidc")))
	decode(t, kustomize(t, filepath.Join(deploy, "examples", "webhooks")))
	decode(t, kustomize(t, "testdata/backup"))
}
