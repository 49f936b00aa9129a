package client_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/client/clienttest"
)

func TestToken(t *testing.T) {
	s := clienttest.New(t)
	c, err := client.Dial(client.Config{Addresses: []string{s.Addr()}, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Workers(context.Background()); err != nil || !slices.Equal(s.Tokens(), []string{"Bearer secret"}) {
		t.Error(err, s.Tokens())
	}
	if _, err := client.Dial(client.Config{Addresses: []string{"127.0.0.1:1", "10.0.0.1:1"}, Token: "secret"}); err == nil {
		t.Error("a token would go over the network in the clear")
	}
}

func TestResolve(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "config.yaml")
	t.Setenv(client.EnvConfig, path)
	t.Setenv(client.EnvContext, "")
	t.Setenv(client.EnvCoordinators, "")
	t.Setenv(client.EnvToken, "")
	want := func(flag []string, context string, addresses ...string) {
		t.Helper()
		cfg, err := client.Resolve(flag, context)
		if err != nil || !slices.Equal(cfg.Addresses, addresses) {
			t.Errorf("%v, %v: want %v", cfg.Addresses, err, addresses)
		}
	}
	want(nil, "", "127.0.0.1:7000")
	f, err := client.LoadContexts(path)
	if err != nil {
		t.Fatal(err)
	}
	f.Contexts["lab"] = client.Context{Coordinators: []string{"lab:1"}, Token: "t"}
	f.Contexts["far"] = client.Context{Coordinators: []string{"far:1", "far:2"}}
	f.Current = "lab"
	if err := f.Save(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Error(st, err)
	}
	want(nil, "", "lab:1")
	t.Setenv(client.EnvContext, "far")
	want(nil, "", "far:1", "far:2")
	t.Setenv(client.EnvCoordinators, "env:1,env:2")
	want(nil, "", "env:1", "env:2")
	want(nil, "lab", "lab:1")
	want([]string{"flag:1"}, "lab", "flag:1")
	if _, err := client.Resolve(nil, "none"); err == nil || !strings.Contains(err.Error(), `there is no context "none" in `+path+": it has far, lab") {
		t.Error(err)
	}
	os.WriteFile(path, []byte("curent: lab\n"), 0o600)
	if _, err := client.Resolve(nil, "lab"); err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), "line 1: field curent not found") {
		t.Error(err)
	}
	for _, bad := range []string{"", "http://x:1"} {
		if _, err := client.Dial(client.Config{Addresses: []string{bad}}); err == nil {
			t.Errorf("%q is taken as an address", bad)
		}
	}
	c := dial(t, "host", "[::1]", "h:1")
	if got := strings.Join(c.Addresses(), " "); got != "host:7000 [::1]:7000 h:1" {
		t.Error(got)
	}
}
