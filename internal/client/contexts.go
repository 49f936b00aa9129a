package client

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// The environment of a client.
const (
	EnvConfig       = "ULISSE_CONFIG"       // path of the file of contexts
	EnvContext      = "ULISSE_CONTEXT"      // name of the context to use
	EnvCoordinators = "ULISSE_COORDINATORS" // host:port of coordinators, separated by commas
	EnvToken        = "ULISSE_TOKEN"
	EnvNamespace    = "ULISSE_NAMESPACE" // to work in
	EnvTLSCert      = "ULISSE_TLS_CERT"  // files, as of tlsconf.Files
	EnvTLSKey       = "ULISSE_TLS_KEY"
	EnvTLSCA        = "ULISSE_TLS_CA"
	EnvTLSCRL       = "ULISSE_TLS_CRL"
)

// DefaultAddress is the coordinator to talk to if nothing names another.
const DefaultAddress = "127.0.0.1:" + DefaultPort

// Context is a cluster that a user works with.
type Context struct {
	Coordinators []string      `yaml:"coordinators,flow" json:"coordinators"`
	Token        string        `yaml:"token,omitempty" json:"-"`
	Namespace    string        `yaml:"namespace,omitempty" json:"namespace,omitempty"`
	TLS          tlsconf.Files `yaml:"tls,omitempty" json:"-"`
}

// Contexts is the file of a user's contexts.
type Contexts struct {
	Current  string             `yaml:"current,omitempty"`
	Contexts map[string]Context `yaml:"contexts"`

	path string
}

// ContextsPath returns where the file of contexts is: $ULISSE_CONFIG, or
// ulisse/config.yaml in the user's folder of configurations.
func ContextsPath() (string, error) {
	if p := os.Getenv(EnvConfig); p != "" {
		return p, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no place for the file of contexts: %w: set %s", err, EnvConfig)
	}
	return filepath.Join(dir, "ulisse", "config.yaml"), nil
}

// LoadContexts reads the file of contexts. A file that is not there holds none.
func LoadContexts(path string) (*Contexts, error) {
	f := &Contexts{path: path}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the contexts: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(f); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %s", path, strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " "))
	}
	if f.Contexts == nil {
		f.Contexts = map[string]Context{}
	}
	return f, nil
}

// Save writes the file, whole or not at all, for the user's eyes only: there
// may be tokens in it.
func (f *Contexts) Save() error {
	text, err := yaml.Marshal(f)
	if err != nil {
		return err
	}
	dir := filepath.Dir(f.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return atomicfile.WriteBytes(f.path, 0o600, text)
}

// Names returns the names of all contexts, sorted.
func (f *Contexts) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

// Get returns the context of a name.
func (f *Contexts) Get(name string) (Context, error) {
	c, ok := f.Contexts[name]
	switch {
	case !ok && len(f.Contexts) == 0:
		return c, fmt.Errorf("there is no context %q in %s: it has none; see 'ulisse context add --help'", name, f.path)
	case !ok:
		return c, fmt.Errorf("there is no context %q in %s: it has %s", name, f.path, strings.Join(f.Names(), ", "))
	case len(c.Coordinators) == 0:
		return c, fmt.Errorf("the context %q in %s names no coordinators", name, f.path)
	}
	return c, nil
}

// Resolve returns how to reach the cluster that the user means: by addresses or
// by a context given on the command line; else by the environment; else by the
// current context of the file; else on this machine.
func Resolve(coordinators []string, context string) (Config, error) {
	token, namespace := os.Getenv(EnvToken), os.Getenv(EnvNamespace)
	files := tlsconf.Files{Cert: os.Getenv(EnvTLSCert), Key: os.Getenv(EnvTLSKey), CA: os.Getenv(EnvTLSCA), CRL: os.Getenv(EnvTLSCRL)}
	if len(coordinators) > 0 {
		return Config{Addresses: coordinators, Token: token, Namespace: namespace, TLS: files}, nil
	}
	if env := os.Getenv(EnvCoordinators); context == "" && env != "" {
		return Config{Addresses: strings.Split(env, ","), Token: token, Namespace: namespace, TLS: files}, nil
	}
	name := cmp.Or(context, os.Getenv(EnvContext))
	path, err := ContextsPath()
	if err != nil {
		if name == "" {
			return Config{Addresses: []string{DefaultAddress}, Token: token, Namespace: namespace, TLS: files}, nil
		}
		return Config{}, err
	}
	f, err := LoadContexts(path)
	if err != nil {
		return Config{}, err
	}
	if name = cmp.Or(name, f.Current); name == "" {
		return Config{Addresses: []string{DefaultAddress}, Token: token, Namespace: namespace, TLS: files}, nil
	}
	c, err := f.Get(name)
	return Config{Addresses: c.Coordinators, Token: cmp.Or(token, c.Token), Namespace: cmp.Or(namespace, c.Namespace), TLS: cmp.Or(files, c.TLS)}, err
}

// ReadToken returns the token in a file, which nobody but its owner may read.
func ReadToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil && runtime.GOOS != "windows" && st.Mode().IsRegular() && st.Mode().Perm()&0o007 != 0 {
		return "", fmt.Errorf("everybody on this machine can read the token in %s: chmod 600 %s", path, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	token := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot read the token: %w", err)
	case token == "" || len(text) > maxToken || strings.ContainsAny(token, " \t\r\n"):
		return "", fmt.Errorf("the file %s holds no token", path)
	}
	return token, nil
}

// maxToken bounds a file with a token, in bytes: those of OpenID Connect are
// long.
const maxToken = 16 << 10
