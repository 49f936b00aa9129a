package ref

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ulisse-gp/ulisse/internal/blob"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func read(ctx context.Context, ref string, o Options) (string, error) {
	r, err := OpenURL(ctx, ref, o)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

func TestFiles(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	os.MkdirAll(filepath.Join(dir, "sub"), 0o755)
	os.WriteFile(filepath.Join(dir, "sub", "t.csv"), []byte("table"), 0o644)
	os.WriteFile(filepath.Join(out, "secret"), []byte("secret"), 0o644)
	os.Symlink(filepath.Join(out, "secret"), filepath.Join(dir, "link"))
	os.Symlink(out, filepath.Join(dir, "dirlink"))
	os.Symlink("sub/t.csv", filepath.Join(dir, "inside"))
	o := Options{AllowedRoots: []string{dir}, MaxBytes: 5, SHA256: blob.Address([]byte("table"))}
	for _, ref := range []string{"sub/t.csv", "inside", filepath.Join(dir, "sub/t.csv"), "file://" + dir + "/sub/../sub/t.csv"} {
		if got, err := read(t.Context(), ref, o); err != nil || got != "table" {
			t.Errorf("%s: %q, %v", ref, got, err)
		}
	}
	for _, ref := range []string{
		filepath.Join(out, "secret"), "../" + filepath.Base(out) + "/secret", "link", "dirlink/secret",
		"file://" + out + "/secret", "file://" + dir + "/../" + filepath.Base(out) + "/secret", "/etc/passwd", dir + "-not/x",
	} {
		if _, err := read(t.Context(), ref, Options{AllowedRoots: []string{dir}}); !errors.Is(err, ErrNotAllowed) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	for _, ref := range []string{"none", "sub", "file://host/x"} {
		if _, err := read(t.Context(), ref, o); err == nil {
			t.Errorf("%s: no error", ref)
		}
	}
	if _, err := read(t.Context(), "sub/t.csv", Options{}); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("nothing is allowed: %v", err)
	}
	o.MaxBytes = 4
	if _, err := read(t.Context(), "sub/t.csv", o); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	o.MaxBytes, o.SHA256 = 0, blob.Address([]byte("other"))
	if _, err := read(t.Context(), "sub/t.csv", o); !errors.Is(err, ErrContent) {
		t.Errorf("other content: %v", err)
	}
	o.SHA256 = "abc"
	if _, err := read(t.Context(), "sub/t.csv", o); !errors.Is(err, blob.ErrAddress) {
		t.Errorf("no hash: %v", err)
	}
}

func TestHTTP(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "inner") }))
	defer elsewhere.Close()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/t.csv":
			io.WriteString(w, "table")
		case "/stream": // of unknown length
			for range 100 {
				fmt.Fprint(w, strings.Repeat("x", 1000))
				w.(http.Flusher).Flush()
			}
		case "/cut":
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, "half")
		case "/away":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		case "/near":
			http.Redirect(w, r, "/t.csv", http.StatusFound)
		case "/hang":
			<-r.Context().Done()
		default:
			http.NotFound(w, r)
		}
	})
	for _, srv := range []*httptest.Server{httptest.NewServer(handler), httptest.NewTLSServer(handler)} {
		defer srv.Close()
		u, _ := url.Parse(srv.URL)
		o := Options{AllowedHosts: []string{u.Host}, MaxBytes: 50_000, Client: srv.Client()}
		for _, path := range []string{"/t.csv?key=1", "/near"} {
			o := o
			o.SHA256 = blob.Address([]byte("table"))
			if got, err := read(t.Context(), srv.URL+path, o); err != nil || got != "table" {
				t.Errorf("%s: %q, %v", path, got, err)
			}
		}
		for path, want := range map[string]error{"/away": ErrNotAllowed, "/stream": ErrTooLarge, "/cut": io.ErrUnexpectedEOF} {
			got, err := read(t.Context(), srv.URL+path, o)
			if !errors.Is(err, want) || len(got) > 50_000 {
				t.Errorf("%s: %d bytes, %v", path, len(got), err)
			}
		}
		if _, err := read(t.Context(), srv.URL+"/none?token=hidden", o); err == nil || !strings.Contains(err.Error(), "404") || strings.Contains(err.Error(), "hidden") {
			t.Errorf("not found: %v", err)
		}
		bad := o
		bad.SHA256 = blob.Address([]byte("other"))
		if _, err := read(t.Context(), srv.URL+"/t.csv", bad); !errors.Is(err, ErrContent) {
			t.Errorf("other content: %v", err)
		}
		bad = o
		bad.MaxBytes = 4
		if _, err := OpenURL(t.Context(), srv.URL+"/t.csv", bad); !errors.Is(err, ErrTooLarge) {
			t.Errorf("length known to be too large: %v", err)
		}
		bad.AllowedHosts = []string{"example.org"}
		if _, err := OpenURL(t.Context(), srv.URL+"/t.csv", bad); !errors.Is(err, ErrNotAllowed) {
			t.Errorf("host: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if _, err := read(ctx, srv.URL+"/hang", o); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		srv.Client().CloseIdleConnections()
	}
}

func TestSchemes(t *testing.T) {
	for _, ref := range []string{"ftp://host/x", "gopher://host/x", "://", "http://[::1"} {
		if _, err := OpenURL(t.Context(), ref, Options{AllowedHosts: []string{"*"}, AllowedRoots: []string{t.TempDir()}}); err == nil {
			t.Errorf("%s: no error", ref)
		}
	}
	for _, ref := range []string{"s3://b/k", "gs://b/k", "azblob://b/k"} {
		_, err := OpenURL(t.Context(), ref, Options{})
		if !errors.Is(err, ErrScheme) && !errors.Is(err, ErrNotAllowed) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// Whatever a name resolves to, a job reaches no address of the worker's
// surroundings unless it is listed.
func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		named, resolved string
		listed, ok      bool
	}{
		{"example.org:443", "93.184.216.34:443", false, true},
		{"example.org:443", "127.0.0.1:443", false, false},
		{"example.org:443", "10.1.2.3:443", false, false},
		{"example.org:443", "100.64.0.1:443", false, false},
		{"example.org:443", "[::1]:443", false, false},
		{"example.org:443", "[fd00::1]:443", false, false},
		{"example.org:443", "[::ffff:127.0.0.1]:443", false, false},
		{"example.org:80", "169.254.169.254:80", false, false},
		{"files.lab:80", "10.1.2.3:80", true, true},
		{"files.lab:80", "127.0.0.1:80", true, true},
		{"files.lab:80", "169.254.169.254:80", true, false},
		{"files.lab:80", "[fe80::1]:80", true, false},
		{"files.lab:80", "0.0.0.0:80", true, false},
		{"169.254.169.254:80", "169.254.169.254:80", true, true},
		{"169.254.169.254:80", "169.254.169.254:80", false, false},
	} {
		if err := allowAddress(c.named, c.resolved, c.listed); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrNotAllowed) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("secret")) }))
	defer s.Close()
	if _, err := OpenURL(t.Context(), s.URL, Options{AllowedHosts: []string{"*"}}); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("this machine, where any host is allowed: %v", err)
	}
	r, err := OpenURL(t.Context(), s.URL, Options{AllowedHosts: []string{"*", "127.0.0.1"}})
	if err != nil {
		t.Fatalf("this machine, which is listed: %v", err)
	}
	r.Close()
}
