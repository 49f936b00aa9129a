package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"github.com/ulisse-gp/ulisse/internal/client"
)

func TestCertsCommands(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	good(t, "certs", "init", "--dir", dir, "--permit", "lab")
	good(t, "certs", "issue", "--dir", dir, "--role", "coordinator", "--name", "a", "--host", "a.lab", "--days", "30")
	good(t, "certs", "issue", "--dir", dir, "--role", "client", "--name", "ada")
	good(t, "certs", "issue", "--dir", dir, "--role", "client", "--name", "ada", "--replace")
	list := asJSON[[]object](t, "certs", "show", filepath.Join(dir, "a.crt"), filepath.Join(dir, "ca.crt"))
	if len(list) != 2 || list[0]["role"] != "coordinator" || list[0]["name"] != "a" || list[0]["hosts"].([]any)[0] != "a.lab" || list[1]["role"] != "authority" {
		t.Errorf("got %v", list)
	}
	if out := good(t, "certs", "show", filepath.Join(dir, "ada.crt")); !strings.Contains(out, "client  ada") {
		t.Error(out)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"certs", "init", "--dir", dir}, "not overwritten"},
		{[]string{"certs", "issue", "--dir", dir, "--role", "client", "--name", "ada"}, "not overwritten"},
		{[]string{"certs", "issue", "--dir", dir, "--role", "root", "--name", "x"}, "there is no role"},
		{[]string{"certs", "issue", "--dir", dir, "--role", "worker"}, "--name is missing"},
		{[]string{"certs", "issue", "--dir", dir, "--role", "coordinator", "--name", "b"}, "needs the hosts"},
		{[]string{"certs", "issue", "--dir", dir, "--role", "worker", "--name", "w", "--host", "w.elsewhere"}, "may not sign"},
		{[]string{"certs", "issue", "--dir", t.TempDir(), "--role", "client", "--name", "x"}, "ulisse certs init"},
		{[]string{"certs", "show", filepath.Join(dir, "a.key")}, "holds no certificate"},
		{[]string{"coordinator", "--listen", "0.0.0.0:0", "--dir", t.TempDir(), "--metrics", ""}, "--insecure"},
		{[]string{"coordinator", "--tls-cert", "x", "--dir", t.TempDir(), "--metrics", ""}, "give both"},
		{[]string{"jobs", "--tls-ca", "/none", "--coordinators", "127.0.0.1:1"}, "/none"},
	} {
		var out, errs bytes.Buffer
		a := &App{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: time.Now}
		if code := a.Execute(context.Background(), c.args); code == 0 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%v: %d %s, want %q", c.args, code, errs.String(), c.want)
		}
	}
}

// A certificate for a browser: only its owner may read the file, its password is printed or is the one given.
func TestCertsP12(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	good(t, "certs", "init", "--dir", dir)
	good(t, "certs", "issue", "--dir", dir, "--role", "client", "--name", "ada")
	opens := func(file, password string) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, c, all, err := pkcs12.DecodeChain(text, password)
		if err != nil || len(all) != 1 || c.URIs[0].String() != "ulisse://client/ada" {
			t.Errorf("%s: %v", file, err)
		}
		if i, err := os.Stat(file); err != nil || i.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
			t.Errorf("%s: %v, %v", file, i.Mode(), err)
		}
	}
	file := filepath.Join(dir, "ada.p12")
	out := good(t, "certs", "p12", "--dir", dir, "--name", "ada")
	_, password, _ := strings.Cut(strings.TrimSpace(out), "printed this once: ")
	opens(file, password)
	other := write(t, t.TempDir(), "password", "sesame open\nmore\n")
	if out := good(t, "certs", "p12", "--dir", dir, "--name", "ada", "--password-file", other, "--replace", "--legacy"); strings.Contains(out, "sesame") {
		t.Error(out)
	}
	opens(file, "sesame open")
	for want, args := range map[string][]string{
		"not overwritten":       {"--name", "ada"},
		"ulisse certs issue":    {"--name", "eve"},
		"--name is missing":     {},
		"first line is empty":   {"--name", "ada", "--replace", "--password-file", "-"},
		"--password-file: open": {"--name", "ada", "--replace", "--password-file", filepath.Join(dir, "none")},
	} {
		if code, _, stderr := ulisse(t, "\n", append([]string{"certs", "p12", "--dir", dir}, args...)...); code != ExitBadInput || !strings.Contains(stderr, want) {
			t.Errorf("%v: %d %s, want %q", args, code, stderr, want)
		}
	}
	opens(file, "sesame open")
}

// Certificates come from flags, else from the environment, else from the
// context, where they are kept by their whole paths.
func TestWhichCertificates(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(client.EnvConfig, filepath.Join(dir, "config.yaml"))
	t.Setenv(client.EnvCoordinators, "")
	for _, env := range []string{client.EnvTLSCA, client.EnvTLSCert, client.EnvTLSKey, client.EnvContext} {
		t.Setenv(env, "")
	}
	t.Chdir(dir)
	good(t, "certs", "init", "--dir", ".")
	good(t, "context", "add", "lab", "10.0.0.1", "--tls-ca", "ca.crt")
	text, err := os.ReadFile("config.yaml")
	if err != nil || !strings.Contains(string(text), filepath.Join(dir, "ca.crt")) {
		t.Errorf("the context has no whole path: %s", text)
	}
	var r remote
	want := func(where, ca string) {
		t.Helper()
		if cfg, err := r.resolve(); err != nil || cfg.TLS.CA != ca {
			t.Errorf("%s: %+v (%v), want %s", where, cfg.TLS, err, ca)
		}
	}
	want("the context", filepath.Join(dir, "ca.crt"))
	t.Setenv(client.EnvToken, "uls_1")
	var shown clusterView
	if err := json.Unmarshal([]byte(good(t, "context", "show", "lab")), &shown); err != nil || shown.Coordinators[0] != "10.0.0.1:7000" ||
		shown.CA != filepath.Join(dir, "ca.crt") || shown.Token != "uls_1" {
		t.Errorf("lab is shown as %+v: %v", shown, err)
	}
	if code, _, stderr := ulisse(t, "", "context", "show", "lap"); code != ExitBadInput || !strings.Contains(stderr, `there is no context "lap"`) {
		t.Error(code, stderr)
	}
	t.Setenv(client.EnvTLSCA, "env.crt")
	want("the environment", "env.crt")
	r.tls.CA = "flag.crt"
	want("the flag", "flag.crt")
}
