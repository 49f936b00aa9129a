// Package ref opens data by reference: a file or URL that every worker can read,
// in place of bytes that are uploaded. What may be opened is listed, since the
// reference comes from a user and is opened on a server.
package ref

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ulisse-gp/ulisse/internal/blob"
)

// Options say what may be opened. The zero value allows nothing.
type Options struct {
	// AllowedRoots are directories; files outside them are refused, also when a
	// link inside leads there. A relative path is taken within the first.
	AllowedRoots []string
	// AllowedHosts are host names or host:port for http and https ("*" for any),
	// and scheme://bucket for s3, gs and azblob.
	AllowedHosts []string
	// MaxBytes is the most that is read; 0: no limit.
	MaxBytes int64
	// SHA256, if not empty, is what the bytes have to have, in lower-case hex. It
	// is checked at the end: the reader's last error is then ErrContent, not io.EOF.
	SHA256 string
	// Client is used for http and https; nil: a client of its own. Its redirects
	// are checked too.
	Client *http.Client
}

var (
	ErrNotAllowed = errors.New("not allowed on this cluster")
	ErrTooLarge   = errors.New("larger than the limit")
	ErrContent    = errors.New("the content is not what was referred to: its SHA-256 differs")
	ErrScheme     = errors.New("this kind of URL is not supported")
)

// opener opens a URL that is allowed. It returns the size, or −1 if unknown.
type opener func(ctx context.Context, u *url.URL) (io.ReadCloser, int64, error)

// clouds are the object stores this program was built with, by scheme.
var clouds = map[string]opener{}

// OpenURL opens a path, a file: or http(s) URL, or, in a program that was built
// with -tags clouds, an object in s3://bucket/key, gs://bucket/key or
// azblob://container/key with the credentials of the environment.
func OpenURL(ctx context.Context, ref string, o Options) (io.ReadCloser, error) {
	if o.SHA256 != "" {
		if err := blob.CheckAddress(o.SHA256); err != nil {
			return nil, fmt.Errorf("sha256: %w", err)
		}
	}
	r, size, err := open(ctx, ref, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", redact(ref), err)
	}
	if o.MaxBytes > 0 && size > o.MaxBytes {
		r.Close()
		return nil, fmt.Errorf("%s: %w: %d bytes, at most %d", redact(ref), ErrTooLarge, size, o.MaxBytes)
	}
	return &checked{ReadCloser: r, name: redact(ref), o: o, h: sha256.New()}, nil
}

func open(ctx context.Context, ref string, o Options) (io.ReadCloser, int64, error) {
	if !strings.Contains(ref, "://") {
		return openFile(ref, o)
	}
	u, err := url.Parse(ref)
	if err != nil {
		return nil, 0, errors.New("it is not a URL")
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" && u.Host != "localhost" || u.RawQuery != "" {
			return nil, 0, errors.New("a file URL is file:///path")
		}
		return openFile(filepath.FromSlash(u.Path), o)
	case "http", "https":
		return openHTTP(ctx, u, o)
	case "s3", "gs", "azblob":
		f := clouds[u.Scheme]
		switch {
		case f == nil:
			return nil, 0, fmt.Errorf("%w: %s needs a program built with -tags clouds", ErrScheme, u.Scheme)
		case !slices.Contains(o.AllowedHosts, u.Scheme+"://"+u.Host):
			return nil, 0, fmt.Errorf("bucket %s://%s: %w", u.Scheme, u.Host, ErrNotAllowed)
		case u.RawQuery != "" || u.User != nil: // they could lead to another endpoint
			return nil, 0, fmt.Errorf("options in the URL: %w: the environment of the workers sets them", ErrNotAllowed)
		}
		return f(ctx, u)
	}
	return nil, 0, fmt.Errorf("%w: %q; file, http, https, s3, gs and azblob are", ErrScheme, u.Scheme)
}

func openFile(path string, o Options) (io.ReadCloser, int64, error) {
	path = filepath.Clean(path)
	for i, dir := range o.AllowedRoots {
		rel := path
		if filepath.IsAbs(path) {
			var err error
			if rel, err = filepath.Rel(dir, path); err != nil {
				continue
			}
		} else if i > 0 {
			break
		}
		if !filepath.IsLocal(rel) {
			continue
		}
		f, err := os.OpenInRoot(dir, rel) // follows no link that leads out
		if err != nil {
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
				return nil, 0, err
			}
			return nil, 0, fmt.Errorf("%w: %w", ErrNotAllowed, err)
		}
		fi, err := f.Stat()
		if err == nil && !fi.Mode().IsRegular() {
			err = errors.New("it is not a regular file")
		}
		if err != nil {
			f.Close()
			return nil, 0, err
		}
		return f, fi.Size(), nil
	}
	return nil, 0, fmt.Errorf("it is outside the directories of data: %w", ErrNotAllowed)
}

func openHTTP(ctx context.Context, u *url.URL, o Options) (io.ReadCloser, int64, error) {
	if err := allowHost(u, o); err != nil {
		return nil, 0, err
	}
	client := *cmp.Or(o.Client, &http.Client{})
	if client.Transport == nil {
		client.Transport = transport(u, o)
	}
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) >= 10 {
			return errors.New("too many redirects")
		}
		if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
			return fmt.Errorf("a redirect from https to %s: %w", req.URL.Scheme, ErrNotAllowed)
		}
		return allowHost(req.URL, o)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, 0, err
	}
	res, err := client.Do(req)
	if err != nil {
		if ue := (*url.Error)(nil); errors.As(err, &ue) {
			err = ue.Err // it repeats the URL, with what is secret in it
		}
		return nil, 0, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, 0, fmt.Errorf("the server answers %s", res.Status)
	}
	return res.Body, res.ContentLength, nil
}

// transport connects to allowed addresses only, whatever names resolve to.
func transport(u *url.URL, o Options) http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableKeepAlives = true
	if p, err := http.ProxyFromEnvironment(&http.Request{URL: u}); p != nil || err != nil {
		return t // which decides where it connects to
	}
	t.Proxy = nil
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		listed := allowHost(&url.URL{Host: address}, Options{AllowedHosts: slices.DeleteFunc(slices.Clone(o.AllowedHosts), func(h string) bool { return h == "*" })}) == nil
		d := net.Dialer{Timeout: connectTime, Control: func(_, resolved string, _ syscall.RawConn) error { return allowAddress(address, resolved, listed) }}
		return d.DialContext(ctx, network, address)
	}
	return t
}

const connectTime = 30 * time.Second

// shared is the address range that providers use among themselves (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// allowAddress refuses addresses of the worker's own surroundings for hosts that
// are allowed only as any is, and those of a machine's link, where clouds keep
// their secrets, also for names that are listed: a name may resolve to anything.
func allowAddress(named, resolved string, listed bool) error {
	a, err := netip.ParseAddrPort(resolved)
	if err != nil {
		return err
	}
	ip := a.Addr().Unmap()
	literal := false
	if host, _, err := net.SplitHostPort(named); err == nil {
		is, err := netip.ParseAddr(host)
		literal = err == nil && is.Unmap() == ip
	}
	switch {
	case listed && literal:
		return nil
	case ip.IsLinkLocalUnicast(), ip.IsUnspecified(), ip.IsMulticast(),
		!listed && (ip.IsPrivate() || ip.IsLoopback() || shared.Contains(ip)):
		return fmt.Errorf("the address %s: %w", ip, ErrNotAllowed)
	}
	return nil
}

func allowHost(u *url.URL, o Options) error {
	for _, h := range o.AllowedHosts {
		if h == "*" || strings.EqualFold(h, u.Host) || strings.EqualFold(h, u.Hostname()) {
			return nil
		}
	}
	return fmt.Errorf("host %s: %w", u.Host, ErrNotAllowed)
}

// redact leaves out of a reference what may be secret: passwords and queries.
func redact(ref string) string {
	u, err := url.Parse(ref)
	if err != nil || u.Host == "" {
		return ref
	}
	if u.RawQuery != "" {
		u.RawQuery = "..."
	}
	return u.Redacted()
}

// checked bounds and hashes what is read.
type checked struct {
	io.ReadCloser
	name string
	o    Options
	n    int64
	h    hash.Hash
	err  error
}

func (c *checked) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.ReadCloser.Read(p)
	c.n += int64(n)
	c.h.Write(p[:n])
	switch {
	case c.o.MaxBytes > 0 && c.n > c.o.MaxBytes:
		n -= int(c.n - c.o.MaxBytes)
		err = fmt.Errorf("%s: %w of %d bytes", c.name, ErrTooLarge, c.o.MaxBytes)
	case err == io.EOF && c.o.SHA256 != "" && hex.EncodeToString(c.h.Sum(nil)) != c.o.SHA256:
		err = fmt.Errorf("%s: %w", c.name, ErrContent)
	case err != nil && err != io.EOF:
		err = fmt.Errorf("%s: %w", c.name, err)
	}
	c.err = err
	return n, err
}
