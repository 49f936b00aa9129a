// Package hooks tells others what happens to jobs: by running a command of the
// operator's, or by posting to a URL (a webhook).
//
// The operator names commands and URLs; a job may name URLs too, of hosts that
// the operator lists, and no commands: whoever may submit jobs can make the
// coordinator neither run anything nor reach anything else: a name on the list that
// resolves to an address of the coordinator's own surroundings is not called, unless the
// operator allows that network. Redirects are not followed. Sending is one attempt; whoever
// calls repeats it.
package hooks

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ulisse-gp/ulisse/internal/version"
)

// Version is that of the body: fields may be added to it, never changed.
const Version = 1

// Event is what is told, as JSON.
type Event struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`    // the same when it is told again
	Event   string    `json:"event"` // converged, failed, stalled, …
	Time    time.Time `json:"time"`
	Job     Job       `json:"job"`
}

// Job is what an event says of the job.
type Job struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	Namespace  string  `json:"namespace,omitempty"`
	Owner      string  `json:"owner,omitempty"`
	State      string  `json:"state"`
	Message    string  `json:"message,omitempty"`     // why it failed, or what is wrong
	StopReason string  `json:"stop_reason,omitempty"` // why it ended
	Draws      int     `json:"draws,omitempty"`       // of each chain, at the end
	RHat       float64 `json:"rhat,omitempty"`
	ESS        float64 `json:"ess,omitempty"`
}

// Config is what the operator allows.
type Config struct {
	Command  string         // run by the shell for every event; none if empty
	Webhooks []string       // URLs that get every event
	Hosts    []string       // of the URLs that jobs may name: host, host:port, or *.domain
	Networks []netip.Prefix // beside public ones, where the URLs that jobs name may lead
	Secret   []byte         // signs bodies; unsigned if empty
}

// Hooks are where events may go. A nil one is nowhere.
type Hooks struct {
	Config
	client *http.Client // for the operator's URLs
	jobs   *http.Client // for those of jobs
}

// Bounds of an attempt.
const (
	webhookTime = 10 * time.Second
	commandTime = 30 * time.Second
	answerBytes = 4 << 10 // of an answer, or of what a command says
)

// New returns the hooks of a configuration, or what is wrong with it.
func New(c Config) (*Hooks, error) {
	for _, u := range c.Webhooks {
		if err := CheckURL(u); err != nil {
			return nil, err
		}
	}
	for _, h := range c.Hosts {
		if name := strings.TrimPrefix(h, "*."); name == "" || strings.ContainsAny(name, "/*@ ") {
			return nil, fmt.Errorf("%q is not a host, host:port or *.domain", h)
		}
	}
	h := &Hooks{Config: c}
	h.client = newClient(&http.Transport{Proxy: http.ProxyFromEnvironment})
	h.jobs = newClient(&http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		d := net.Dialer{Control: func(_, resolved string, _ syscall.RawConn) error { return h.allowAddress(address, resolved) }}
		return d.DialContext(ctx, network, address)
	}})
	return h, nil
}

func newClient(t *http.Transport) *http.Client {
	t.DisableKeepAlives, t.TLSHandshakeTimeout = true, webhookTime
	return &http.Client{Timeout: webhookTime, Transport: t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// shared is the range of addresses that providers use among themselves (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// allowAddress refuses the addresses of the coordinator's own surroundings: this machine, its
// link, where clouds keep their secrets, and private networks. It is asked of the address that is
// connected to, once names are resolved: a name may resolve to anything, and to something else the
// next time. Allowed is what the operator lists, as an address or as a network.
func (h *Hooks) allowAddress(named, resolved string) error {
	a, err := netip.ParseAddrPort(resolved)
	if err != nil {
		return err
	}
	ip := a.Addr().Unmap()
	if host, _, err := net.SplitHostPort(named); err == nil {
		if literal, err := netip.ParseAddr(host); err == nil && literal.Unmap() == ip {
			return nil // it stands on the list of hosts
		}
	}
	if slices.ContainsFunc(h.Networks, func(p netip.Prefix) bool { return p.Contains(ip) }) ||
		ip.IsGlobalUnicast() && !ip.IsPrivate() && !shared.Contains(ip) {
		return nil
	}
	return fmt.Errorf("the webhook's host has the address %s, which is not public: the operator allows networks with --webhook-networks", ip)
}

// CheckURL says what is wrong with the URL of a webhook.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a URL", text)
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return fmt.Errorf("%q is not a URL that begins with https:// or http://", text)
	case u.User != nil:
		return errors.New("a webhook's URL has no user and password in it")
	}
	return nil
}

// Allowed says why a job may not name a URL.
func (h *Hooks) Allowed(text string) error {
	if err := CheckURL(text); err != nil {
		return err
	}
	u, _ := url.Parse(text)
	var hosts []string
	if h != nil {
		hosts = h.Hosts
	}
	if !slices.ContainsFunc(hosts, func(pattern string) bool { return matches(pattern, u) }) {
		return fmt.Errorf("jobs may not name webhooks of %s: the operator lists hosts with --webhook-hosts", u.Host)
	}
	return nil
}

// matches reports whether a URL is of a host. A pattern without a port stands
// for the scheme's own.
func matches(pattern string, u *url.URL) bool {
	host, port := pattern, ""
	if h, p, err := net.SplitHostPort(pattern); err == nil {
		host, port = h, p
	}
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	host = strings.ToLower(host)
	if u.Port() != port {
		return false
	}
	if domain, ok := strings.CutPrefix(host, "*."); ok {
		return strings.HasSuffix(name, "."+domain)
	}
	return name == host
}

// Target is somewhere that events go.
type Target struct {
	// Name tells targets apart; it does not show a URL, which may be a secret.
	Name string
	send func(ctx context.Context, e *Event, body []byte) error
}

// Targets returns where an event goes: to all that the operator named, and to
// those of the job's webhooks that are allowed.
func (h *Hooks) Targets(webhooks []string) []Target {
	if h == nil {
		return nil
	}
	var out []Target
	if h.Command != "" {
		out = append(out, Target{Name: "command", send: h.run})
	}
	add := func(text string, client *http.Client) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		sum := sha256.Sum256([]byte(text))
		t := Target{Name: fmt.Sprintf("%s/%x", u.Host, sum[:4]), send: func(ctx context.Context, e *Event, body []byte) error { return h.post(ctx, client, text, e, body) }}
		if !slices.ContainsFunc(out, func(o Target) bool { return o.Name == t.Name }) {
			out = append(out, t)
		}
	}
	for _, u := range h.Webhooks {
		add(u, h.client)
	}
	for _, u := range webhooks {
		if h.Allowed(u) == nil {
			add(u, h.clientFor(u))
		}
	}
	return out
}

// clientFor returns who posts to a job's URL: where a proxy does, that decides what it connects to.
func (h *Hooks) clientFor(text string) *http.Client {
	if u, err := url.Parse(text); err == nil {
		if p, err := http.ProxyFromEnvironment(&http.Request{URL: u}); p != nil || err != nil {
			return h.client
		}
	}
	return h.jobs
}

// Send tells of an event once.
func (t *Target) Send(ctx context.Context, e *Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return t.send(ctx, e, body)
}

// Sign returns the signature of a body: its HMAC-SHA256 in hex.
func Sign(secret, body []byte) string {
	m := hmac.New(sha256.New, secret)
	m.Write(body)
	return "sha256=" + hex.EncodeToString(m.Sum(nil))
}

// post posts to a webhook. Errors do not tell its URL.
func (h *Hooks) post(ctx context.Context, client *http.Client, to string, e *Event, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return errors.New("the webhook's URL is not one")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "ulisse/"+version.Version)
	r.Header.Set("Ulisse-Event", e.Event)
	r.Header.Set("Ulisse-Delivery", e.ID)
	if len(h.Secret) > 0 {
		r.Header.Set("Ulisse-Signature", Sign(h.Secret, body))
	}
	resp, err := client.Do(r)
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, answerBytes))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the webhook answered %s", resp.Status)
	}
	return nil
}

// run runs the operator's command, with the body on its standard input. What
// jobs say reaches it as data alone, never as a part of the command line.
func (h *Hooks) run(ctx context.Context, e *Event, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", h.Command)
	cmd.WaitDelay = time.Second
	cmd.Stdin = bytes.NewReader(body)
	cmd.Env = append(os.Environ(), "ULISSE_EVENT="+e.Event, "ULISSE_EVENT_ID="+e.ID, "ULISSE_JOB="+e.Job.ID, "ULISSE_JOB_NAME="+e.Job.Name, "ULISSE_JOB_STATE="+e.Job.State)
	var said tail
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the hook's command: %w: %s", err, strings.TrimSpace(string(said)))
	}
	return nil
}

// tail keeps the end of what is written.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	*t = (*t)[max(0, len(*t)-answerBytes):]
	return len(p), nil
}
