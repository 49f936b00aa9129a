package kube

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const deploy = "../../deploy/k8s"

// overlays are all there are.
func overlays(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(deploy, "overlays", "*"))
	if err != nil || len(dirs) < 4 {
		t.Fatalf("overlays in %s: %v, %v", deploy, dirs, err)
	}
	for i, d := range dirs {
		dirs[i] = filepath.Base(d)
	}
	return dirs
}

// render returns what kustomize makes of an overlay.
func render(t *testing.T, overlay string) []byte {
	t.Helper()
	return kustomize(t, filepath.Join(deploy, "overlays", overlay))
}

func kustomize(t *testing.T, dir string) []byte {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("kustomize %s: %v", dir, err)
	}
	out, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// scheme knows the kinds that are Kubernetes' own.
func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme,
		corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// objects are those of one rendering, typed, and the kinds that are not
// Kubernetes' own by name.
type objects struct {
	all        []metav1.Object
	foreign    []string
	sets       map[string]*appsv1.StatefulSet
	deploys    map[string]*appsv1.Deployment
	services   map[string]*corev1.Service
	configs    map[string]*corev1.ConfigMap
	budgets    []*policyv1.PodDisruptionBudget
	policies   []*networkingv1.NetworkPolicy
	scalers    []*autoscalingv2.HorizontalPodAutoscaler
	namespaces []*corev1.Namespace
}

// documents splits a stream of YAML.
func documents(t *testing.T, stream []byte) [][]byte {
	t.Helper()
	var out [][]byte
	r := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(stream)))
	defer r.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := r.Read(buf)
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if doc := bytes.TrimSpace(buf[:n]); len(doc) > 0 {
			out = append(out, slices.Clone(doc))
		}
	}
}

// decode reads objects strictly: a field that is not in the type, or is there
// twice, is an error.
func decode(t *testing.T, stream []byte) *objects {
	t.Helper()
	known := scheme(t)
	o := &objects{sets: map[string]*appsv1.StatefulSet{}, deploys: map[string]*appsv1.Deployment{},
		services: map[string]*corev1.Service{}, configs: map[string]*corev1.ConfigMap{}}
	for _, doc := range documents(t, stream) {
		var meta metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(doc, &meta); err != nil {
			t.Fatal(err)
		}
		kind := schema.FromAPIVersionAndKind(meta.APIVersion, meta.Kind)
		if !known.Recognizes(kind) {
			o.foreign = append(o.foreign, kind.Kind+"/"+meta.Name)
			continue
		}
		v, err := known.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(doc, v); err != nil {
			t.Fatalf("%s %s: %v", kind.Kind, meta.Name, err)
		}
		o.all = append(o.all, v.(metav1.Object))
		switch v := v.(type) {
		case *appsv1.StatefulSet:
			o.sets[v.Name] = v
		case *appsv1.Deployment:
			o.deploys[v.Name] = v
		case *corev1.Service:
			o.services[v.Name] = v
		case *corev1.ConfigMap:
			o.configs[v.Name] = v
		case *corev1.Namespace:
			o.namespaces = append(o.namespaces, v)
		case *policyv1.PodDisruptionBudget:
			o.budgets = append(o.budgets, v)
		case *networkingv1.NetworkPolicy:
			o.policies = append(o.policies, v)
		case *autoscalingv2.HorizontalPodAutoscaler:
			o.scalers = append(o.scalers, v)
		}
	}
	return o
}

// workload is a template of pods and who makes them.
type workload struct {
	name     string
	replicas *int32
	labels   map[string]string
	pod      corev1.PodSpec
	selector *metav1.LabelSelector
}

func (o *objects) workloads() []workload {
	var out []workload
	for _, s := range o.sets {
		out = append(out, workload{s.Name, s.Spec.Replicas, s.Spec.Template.Labels, s.Spec.Template.Spec, s.Spec.Selector})
	}
	for _, d := range o.deploys {
		out = append(out, workload{d.Name, d.Spec.Replicas, d.Spec.Template.Labels, d.Spec.Template.Spec, d.Spec.Selector})
	}
	slices.SortFunc(out, func(a, b workload) int { return strings.Compare(a.name, b.name) })
	return out
}

// onEach runs a test on every overlay.
func onEach(t *testing.T, f func(t *testing.T, o *objects)) {
	for _, overlay := range overlays(t) {
		t.Run(overlay, func(t *testing.T) { f(t, decode(t, render(t, overlay))) })
	}
}

// TestMisspelt holds the strictness of decode against a mistake.
func TestMisspelt(t *testing.T) {
	good := render(t, "single")
	bad := bytes.Replace(good, []byte("podManagementPolicy:"), []byte("podManagmentPolicy:"), 1)
	var set appsv1.StatefulSet
	found := false
	for _, doc := range documents(t, bad) {
		if bytes.Contains(doc, []byte("podManagmentPolicy")) {
			found = true
			if err := yaml.UnmarshalStrict(doc, &set); err == nil || !strings.Contains(err.Error(), "podManagmentPolicy") {
				t.Errorf("a misspelt field is not refused: %v", err)
			}
		}
	}
	if !found {
		t.Error("there is nothing to misspell")
	}
}

// write puts a rendering into a file for programs that read one.
func write(t *testing.T, name string, stream []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), fmt.Sprint(name, ".yaml"))
	if err := os.WriteFile(path, stream, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
