package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	chartDir  = "../../deploy/helm/ulisse"
	chartSets = "../../deploy/helm/values"
)

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// values reads a file of settings, and sets paths (a.b.c) to values.
func values(t *testing.T, file string, set map[string]any) map[string]any {
	t.Helper()
	out := map[string]any{}
	if file != "" {
		b, err := os.ReadFile(filepath.Join(chartSets, file+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(b, &out); err != nil {
			t.Fatal(err)
		}
	}
	for path, v := range set {
		at := out
		keys := strings.Split(path, ".")
		for _, k := range keys[:len(keys)-1] {
			next, ok := at[k].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[k] = next
			}
			at = next
		}
		at[keys[len(keys)-1]] = v
	}
	return out
}

// template is 'helm template ulisse deploy/helm/ulisse --namespace ulisse' with settings.
func template(t *testing.T, settings map[string]any) (string, error) {
	t.Helper()
	c := loadChart(t)
	release := common.ReleaseOptions{Name: "ulisse", Namespace: "ulisse", IsInstall: true, Revision: 1}
	render, err := util.ToRenderValues(c, settings, release, common.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, render)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(files[name]) != "" {
			fmt.Fprintf(&out, "---\n%s\n", files[name])
		}
	}
	return out.String(), nil
}

// mustTemplate is template of settings that are good.
func mustTemplate(t *testing.T, settings map[string]any) []byte {
	t.Helper()
	out, err := template(t, settings)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(out)
}

// plain returns objects by kind and name, without what only Helm says of them.
func plain(t *testing.T, stream []byte) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, doc := range documents(t, stream) {
		var o map[string]any
		if err := yaml.Unmarshal(doc, &o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if o["kind"] == "Namespace" || o == nil {
			continue // made by 'helm install --create-namespace', or before
		}
		meta := o["metadata"].(map[string]any)
		for _, field := range []string{"labels", "annotations"} {
			m, _ := meta[field].(map[string]any)
			maps.DeleteFunc(m, func(k string, _ any) bool {
				return strings.HasPrefix(k, "helm.sh/") || k == "app.kubernetes.io/managed-by"
			})
			if len(m) == 0 {
				delete(meta, field)
			}
		}
		id := fmt.Sprint(o["kind"], "/", meta["name"])
		if _, twice := out[id]; twice {
			t.Errorf("%s is there twice", id)
		}
		out[id] = o
	}
	return out
}

// flat returns the leaves of objects, each in a line with its path; lists of
// things with names by these, for their order says nothing.
func flat(objects map[string]any) []string {
	var out []string
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				walk(path+"."+k, x)
			}
			if len(v) == 0 {
				out = append(out, path+" = {}")
			}
		case []any:
			for i, x := range v {
				key := fmt.Sprint(i)
				if m, ok := x.(map[string]any); ok && m["name"] != nil {
					key = fmt.Sprint(m["name"])
				}
				walk(path+"["+key+"]", x)
			}
			if len(v) == 0 {
				out = append(out, path+" = []")
			}
		default:
			out = append(out, fmt.Sprintf("%s = %#v", path, v))
		}
	}
	for id, o := range objects {
		walk(id, o)
	}
	slices.Sort(out)
	return out
}

// TestOneTruth: with the settings of an overlay the chart renders to the objects of
// that overlay, to the last field. What is changed in one has to be changed in
// the other.
func TestOneTruth(t *testing.T) {
	same := func(name string, kustomized []byte, settings map[string]any) {
		t.Run(name, func(t *testing.T) {
			want, got := plain(t, kustomized), plain(t, mustTemplate(t, settings))
			if len(want) < 8 {
				t.Fatalf("the overlay has %d objects", len(want))
			}
			if diff := cmp.Diff(flat(want), flat(got)); diff != "" {
				t.Errorf("deploy/k8s (-) and deploy/helm (+):\n%s", diff)
			}
		})
	}
	for _, overlay := range overlays(t) {
		same(overlay, render(t, overlay), values(t, overlay, nil))
	}
	same("with a backup", kustomize(t, "testdata/backup"), values(t, "ha", map[string]any{"backup.enabled": true}))
	same("with revoked certificates", kustomize(t, "testdata/revoked"), values(t, "ha", map[string]any{"backup.enabled": true, "tls.revokedConfigMap": "ulisse-revoked"}))
	same("wanted", kustomize(t, "testdata/fake"), values(t, "", map[string]any{"autoscale.metric": "wanted"}))
	same("OpenID Connect", without(t, kustomize(t, filepath.Join(deploy, "examples", "oidc")), "oauth2-proxy"), values(t, "ha", map[string]any{
		"auth.oidc": map[string]any{"issuer": "https://login.example.org", "clientID": "CLIENT-ID", "grants": []any{"statistics=submitter:default", "operators=admin:*"}},
		"ingress":   map[string]any{"enabled": true, "signIn": true}}))
	same("webhooks", kustomize(t, filepath.Join(deploy, "examples", "webhooks")), values(t, "ha", map[string]any{
		"webhooks": map[string]any{"urls": []any{"https://hooks.example.org/ulisse"}, "hosts": []any{"chat.example.org"}, "networks": []any{"10.20.0.0/16"}}}))
}

// without drops objects of that name.
func without(t *testing.T, stream []byte, name string) []byte {
	t.Helper()
	var out []string
	for _, doc := range documents(t, stream) {
		if !regexp.MustCompile(`(?m)^  name: ` + name + `$`).Match(doc) {
			out = append(out, string(doc))
		}
	}
	return []byte(strings.Join(out, "\n---\n"))
}

// TestLint is 'helm lint --strict', with each file of settings.
func TestLint(t *testing.T) {
	sets, err := filepath.Glob(filepath.Join(chartSets, "*.yaml"))
	if err != nil || len(sets) != len(overlays(t)) {
		t.Fatalf("settings for each overlay: %v, %v", sets, err)
	}
	for _, overlay := range overlays(t) {
		for _, m := range lint.RunAll(chartDir, values(t, overlay, nil), "ulisse").Messages {
			if m.Severity > 1 { // 1: an icon is recommended
				t.Errorf("%s: %v", overlay, m)
			}
		}
	}
}

// TestSettings: what is said with a setting is in what is applied.
func TestSettings(t *testing.T) {
	for _, c := range []struct {
		set  map[string]any
		want []string
		not  string
	}{
		{map[string]any{"image.repository": "r.example.org/ulisse", "image.tag": "1.2.3"}, []string{"image: r.example.org/ulisse:1.2.3"}, "ghcr.io"},
		{map[string]any{"image.pullSecrets": []any{"registry"}, "backup.enabled": true}, []string{"imagePullSecrets:\n      - name: registry", "imagePullSecrets:\n          - name: registry"}, ""},
		{map[string]any{"coordinators.replicas": 5, "coordinators.founders": 3}, []string{`founders: "3"`, "replicas: 5", "ulisse-coordinator-4.ulisse-coordinators:7000"}, ""},
		{map[string]any{"coordinators.storage": map[string]any{"size": "1Ti", "className": "fast"}}, []string{"storage: 1Ti", "storageClassName: fast"}, "20Gi"},
		{map[string]any{"coordinators.extraArgs": []any{"--webhook=https://a.example.org"}}, []string{`- "--webhook=https://a.example.org"`}, ""},
		{map[string]any{"workers.cores": 16, "workers.memory.limit": "64Gi"}, []string{`limits: {cpu: "16", memory: 64Gi`}, `cpu: "4"`},
		{map[string]any{"workers.cache.bytes": 80_000_000_000}, []string{"--cache-bytes=80000000000\n"}, ""},
		{map[string]any{"workers.replicas": 7, "autoscale.enabled": false}, []string{"replicas: 7"}, "HorizontalPodAutoscaler"},
		{map[string]any{"workers.nodeSelector": map[string]any{"pool": "big"}, "workers.tolerations": []any{map[string]any{"key": "a", "operator": "Exists"}}}, []string{"pool: big", "- key: a"}, ""},
		{map[string]any{"autoscale.max": 100, "autoscale.cpuPercent": 50}, []string{"maxReplicas: 100", "averageUtilization: 50"}, ""},
		{map[string]any{"auth.mode": "none"}, nil, "--auth=tokens"},
		{map[string]any{"auth.adminTokenSecret": "first"}, []string{"secretName: first"}, ""},
		{map[string]any{"tls.coordinatorSecret": "c", "tls.workerSecret": "w"}, []string{"secretName: c,", "secretName: w,"}, "ulisse-coordinator-tls"},
		{map[string]any{"tls.revokedConfigMap": "bad-certificates"}, []string{"name: ULISSE_TLS_CRL, value: /etc/ulisse/revoked/ca.crl", "configMap: {name: bad-certificates}"}, ""},
		{map[string]any{"backup.enabled": true}, nil, "revoked"},
		{map[string]any{"networkPolicies": false}, nil, "NetworkPolicy"},
		{map[string]any{"backup.enabled": true, "backup.schedule": "1 2 * * *", "backup.keep": 3}, []string{`schedule: "1 2 * * *"`, "--keep=3,", "helm.sh/resource-policy: keep"}, ""},
		{map[string]any{"ingress.enabled": true, "ingress.host": "u.example.org", "ingress.annotations": map[string]any{"nginx.ingress.kubernetes.io/proxy-body-size": "2g"}},
			[]string{"host: u.example.org", "proxy-body-size: 2g", "proxy-ssl-secret: ulisse/ulisse-trust"}, "proxy-body-size: 1g"},
	} {
		got := string(mustTemplate(t, values(t, "", c.set)))
		decode(t, []byte(got)) // strictly
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%v: there is no %q", c.set, w)
			}
		}
		if c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%v: there is still %q", c.set, c.not)
		}
	}
}

// TestSchema: a wrong setting is refused before anything is applied.
func TestSchema(t *testing.T) {
	for path, v := range map[string]any{
		"coordinators.replicas": 2, "coordinator.replicas": 3, "workers.cores": "four", "autoscale.metric": "memory", "auth.mode": "token",
		"image.pullPolicy": "always", "workers.memory.limit": "4 GB", "coordinators.extraArgs": []any{"webhook"}, "auth.oidc.issuer": "https://login.example.org",
		"auth.oidc.grants": []any{"a=king:x"}, "backup.schedule": "nightly", "webhooks.urls": []any{"http://x.org"}, "webhooks.networks": []any{"10.0.0.1"}, "networkPolicies": "yes", "tls.revokedConfigMap": "Bad Certificates", "coordinators.memberGrace": "1 day",
	} {
		if _, err := template(t, values(t, "", map[string]any{path: v})); err == nil || !strings.Contains(err.Error(), strings.Split(path, ".")[0]) {
			t.Errorf("%s: %v is taken, or refused without a word about it: %v", path, v, err)
		}
	}
}

// TestDocumented: every setting has a line that says what it is, and a rule; and
// every rule a setting.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	schema := map[string]any{}
	b, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err == nil {
		err = json.Unmarshal(b, &schema)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(schema["properties"].(map[string]any), "global") // Helm's own
	defaults := loadChart(t).Values
	var both func(path string, rule, value map[string]any)
	both = func(path string, rule, value map[string]any) {
		properties, _ := rule["properties"].(map[string]any)
		if properties == nil {
			return // a map of the user's
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(properties)), slices.Sorted(maps.Keys(value))); diff != "" && rule["additionalProperties"] == false {
			t.Errorf("%s: rules (-) and settings (+):\n%s", path, diff)
		}
		for k, v := range value {
			if m, ok := v.(map[string]any); ok {
				if r, ok := properties[k].(map[string]any); ok {
					both(path+"."+k, r, m)
				}
			}
		}
	}
	both("", schema, defaults)
	// A comment stands above each setting at the left, and above each that
	// does not speak for itself.
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if regexp.MustCompile(`^[a-zA-Z]+:`).MatchString(line) && !strings.HasPrefix(lines[i-1], "#") {
			t.Errorf("values.yaml:%d: no comment above %q", i+1, line)
		}
	}
}
