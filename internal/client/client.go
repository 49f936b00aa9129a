// Package client talks to a cluster: it submits, watches and ends jobs, moves
// data sets and results, and looks after workers and coordinators.
//
// Every coordinator answers every call, so a Client has a list of them and
// keeps to one while it answers. When it does not, the next is asked; calls
// that can be repeated are, with growing pauses, until the caller's context is
// done or Config.Patience is over. A watch goes on at another coordinator, an
// upload where it stopped.
package client

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// DefaultPort is where coordinators listen unless told otherwise.
const DefaultPort = "7000"

const (
	connectTime  = 2 * time.Second
	callTime     = 15 * time.Second      // for one attempt
	firstPause   = 50 * time.Millisecond // between rounds over all coordinators
	longestPause = 2 * time.Second
)

// Config says how to reach a cluster.
type Config struct {
	Addresses []string      // host:port of coordinators; the port may be left out
	TLS       tlsconf.Files // without CA: no encryption
	Token     string        // sent with every call; over TLS or to this machine only
	Namespace string        // to work in; empty: that of the token, or the default
	// Patience is how long a call goes on without any answer; 0 means until
	// its context is done.
	Patience time.Duration
	// OnRetry, if set, is told why an attempt failed that will be repeated.
	OnRetry     func(error)
	DialOptions []grpc.DialOption
}

// Client is a connection to a cluster. It may be used by many goroutines.
type Client struct {
	cfg   Config
	certs *tlsconf.Source // nil: no encryption
	conns []*grpc.ClientConn

	mu  sync.Mutex
	cur int // the coordinator that answered last
}

// Dial returns a client of the cluster. It does not wait for a connection: calls
// do.
func Dial(cfg Config) (*Client, error) {
	if len(cfg.Addresses) == 0 {
		return nil, errors.New("no coordinator's address is given")
	}
	c := &Client{cfg: cfg}
	if err := cfg.TLS.Check(true); err != nil {
		return nil, err
	}
	if cfg.TLS.Set() {
		var err error
		if c.certs, err = tlsconf.Load(cfg.TLS, tlsconf.Options{}); err != nil {
			return nil, fmt.Errorf("the certificates: %w", err)
		}
	}
	c.cfg.Addresses = slices.Clone(cfg.Addresses)
	dial, err := dialer(cfg, c.certs)
	if err != nil {
		return nil, err
	}
	for i, a := range c.cfg.Addresses {
		a, err := withPort(a)
		if err != nil {
			return nil, err
		}
		c.cfg.Addresses[i] = a
		cc, err := dial(a)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("the coordinator's address %q: %w", a, err)
		}
		c.conns = append(c.conns, cc)
	}
	return c, nil
}

// dialer returns what connects to a coordinator.
func dialer(cfg Config, certs *tlsconf.Source) (func(string) (*grpc.ClientConn, error), error) {
	opts := cfg.DialOptions
	if cfg.Token != "" {
		if !cfg.TLS.Set() && slices.ContainsFunc(cfg.Addresses, func(a string) bool { return !rpc.Loopback(a) }) {
			return nil, errors.New("a token goes over TLS or to this machine only: the cluster's address is neither")
		}
	}
	if cfg.Token != "" || cfg.Namespace != "" {
		opts = append(slices.Clone(opts), rpc.WithCaller(cfg.Token, cfg.Namespace, cfg.Token != "" && cfg.TLS.Set()))
	}
	return rpc.Dialer(certs.Credentials(identity.Coordinator), opts...), nil
}

// withPort completes an address.
func withPort(a string) (string, error) {
	if a = strings.TrimSpace(a); a == "" {
		return "", errors.New("an empty coordinator's address: give host:port")
	}
	if strings.Contains(a, "://") {
		return "", fmt.Errorf("the coordinator's address %q: give host:port, without a scheme", a)
	}
	if _, port, err := net.SplitHostPort(a); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", fmt.Errorf("the coordinator's address %q: its port is not a number from 1 to 65535", a)
		}
		return a, nil
	}
	return net.JoinHostPort(strings.Trim(a, "[]"), DefaultPort), nil
}

// Addresses returns the coordinators' addresses.
func (c *Client) Addresses() []string { return c.cfg.Addresses }

// Close ends all connections.
func (c *Client) Close() error {
	var errs []error
	for _, cc := range c.conns {
		errs = append(errs, cc.Close())
	}
	return errors.Join(errs...)
}

// current returns the coordinator to ask.
func (c *Client) current() (int, *grpc.ClientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cur, c.conns[c.cur]
}

// leave turns to the next coordinator, if nobody has turned already.
func (c *Client) leave(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur == i {
		c.cur = (i + 1) % len(c.conns)
	}
}
