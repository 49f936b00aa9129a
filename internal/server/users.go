package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/audit"
	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/coordinator"
	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// What --auth says of callers.
const (
	AuthNone   = "none"   // they are not asked who they are
	AuthTokens = "tokens" // they show a token
)

// Users says who may do what at a coordinator.
type Users struct {
	Auth string // AuthNone if empty
	// TokenFile has the first administrator's token; admin-token in the
	// coordinator's folder if empty.
	TokenFile string
	Audit     string // file of the audit log; none if empty
	// AuditReads keeps also who took data or draws.
	AuditReads bool
	Rate       float64 // calls a second of each caller; 0 for no limit
	Streams    int     // of each caller at a time; 0 for no limit
	// OIDC, if its issuer is set, says whose tokens are taken besides the
	// cluster's own; Grants are those of its groups, as auth.ParseGrant reads them.
	OIDC   *auth.OIDC
	Grants []string
}

// check refuses settings that are not safe. plain says that there is no TLS.
func (u *Users) check(dir string, plain bool, listeners ...*door) error {
	switch u.Auth = cmp.Or(u.Auth, AuthNone); u.Auth {
	case AuthNone:
		if u.OIDC != nil && u.OIDC.Issuer != "" {
			return errors.New("--oidc-issuer needs --auth tokens: otherwise nobody is asked for a token")
		}
		u.TokenFile = ""
		return nil
	case AuthTokens:
	default:
		return fmt.Errorf("--auth %q: give none or tokens", u.Auth)
	}
	if err := u.checkOIDC(); err != nil {
		return err
	}
	u.TokenFile = cmp.Or(u.TokenFile, filepath.Join(dir, "admin-token"))
	for _, l := range listeners {
		if l == nil || !plain {
			continue
		}
		if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
			return fmt.Errorf("--auth tokens: tokens would travel in plaintext over %s: listen on the loopback interface", a)
		}
	}
	return nil
}

func (u *Users) checkOIDC() error {
	o := u.OIDC
	if o == nil || o.Issuer == "" {
		u.OIDC = nil
		return nil
	}
	if o.ClientID == "" || len(u.Grants) == 0 {
		return errors.New("--oidc-issuer needs --oidc-client-id, whom its tokens are for, and --oidc-grant, what its groups may do")
	}
	for _, s := range u.Grants {
		g, err := auth.ParseGrant(s)
		if err != nil {
			return fmt.Errorf("--oidc-grant %w", err)
		}
		o.Grants = append(o.Grants, g)
	}
	return nil
}

// guard returns the guard of a coordinator, and what to call at the end.
func (u *Users) guard(coord *coordinator.Coordinator, plain bool, log *slog.Logger) (g *auth.Guard, end func() error, err error) {
	cfg := auth.Config{Required: u.Auth == AuthTokens, Source: coord, Certificates: !plain, Limits: auth.NewLimits(u.Rate, u.Streams)}
	if u.OIDC != nil {
		cfg.Foreign = u.OIDC.Verify
	}
	if u.Audit == "" {
		return auth.NewGuard(cfg), func() error { return nil }, nil
	}
	l, err := audit.Open(u.Audit)
	if err != nil {
		return nil, nil, err
	}
	strangers, err := audit.Open(u.Audit + strangersSuffix)
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	to := func(l *audit.Log) func(auth.Event) {
		return func(e auth.Event) {
			if err := l.Append(e); err != nil {
				log.Error("a call is missing in the audit log", "error", err, "method", e.Method, "user", e.User, "from", e.From)
			}
		}
	}
	cfg.Audit, cfg.AuditStrangers, cfg.AuditReads = to(l), to(strangers), u.AuditReads
	return auth.NewGuard(cfg), func() error { return errors.Join(l.Close(), strangers.Close()) }, nil
}

// strangersSuffix is what the file's name ends with that keeps who was refused
// without its being known who that was.
const strangersSuffix = ".strangers"

// dialOptions let a coordinator without certificates say to others what it is.
func (u *Users) dialOptions(plain bool, key func() string) []grpc.DialOption {
	if u.Auth != AuthTokens || !plain {
		return nil
	}
	return []grpc.DialOption{grpc.WithPerRPCCredentials(nodeKey(key))}
}

// nodeKey shows the key that the coordinators share.
type nodeKey func() string

func (k nodeKey) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	key := k()
	if key == "" {
		return nil, status.Error(codes.Unavailable, "this coordinator has not heard of the others' key yet: try again")
	}
	return map[string]string{rpc.NodeKey: key}, nil
}

// RequireTransportSecurity is false: check has seen to it that plaintext stays
// on this machine.
func (nodeKey) RequireTransportSecurity() bool { return false }
