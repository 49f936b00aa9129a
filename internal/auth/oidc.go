package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// Grant is what the members of a group may do.
type Grant struct {
	Group      string
	Role       state.Role
	Namespaces []string
}

// ParseGrant reads GROUP=ROLE:NAMESPACE[,NAMESPACE…].
func ParseGrant(s string) (g Grant, err error) {
	i := strings.LastIndexByte(s, '=')
	if i <= 0 {
		return g, fmt.Errorf("%q: give GROUP=ROLE:NAMESPACE[,NAMESPACE…]", s)
	}
	role, names, ok := strings.Cut(s[i+1:], ":")
	g = Grant{Group: s[:i], Role: state.Role(role), Namespaces: strings.Split(names, ",")}
	if !ok || roles[g.Role] == 0 {
		return g, fmt.Errorf("%q: the role is viewer, submitter or admin, with namespaces after a colon", s)
	}
	for _, n := range g.Namespaces {
		if n != state.AllNamespaces && state.CheckName(n) != nil {
			return g, fmt.Errorf("%q: %q is not the name of a namespace", s, n)
		}
	}
	return g, nil
}

// OIDC verifies tokens of an OpenID Connect provider. The provider is asked for
// its keys when the first token comes, and again for keys that are new.
type OIDC struct {
	Issuer, ClientID string
	GroupsClaim      string // groups if empty
	Grants           []Grant
	Client           *http.Client // to ask the provider with; nil: one with a limit of time
	Now              func() time.Time

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier
	failed   time.Time
}

// signatures are the algorithms that are taken: none that shares a secret, nor
// none at all.
var signatures = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA}

// askTime bounds a question to the provider, askAgain the pause after one that
// failed, and between those for new keys: whoever shows a token of an unknown key
// makes us ask. askAtOnce is how many may come at once.
const (
	askTime   = 10 * time.Second
	askAgain  = 5 * time.Second
	askAtOnce = 4
)

// seldom asks at most so often.
type seldom struct {
	http.RoundTripper // the default one if nil
	limit             *rate.Limiter
}

func (s *seldom) RoundTrip(r *http.Request) (*http.Response, error) {
	if !s.limit.Allow() {
		return nil, errors.New("it was asked a moment ago")
	}
	if s.RoundTripper == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	return s.RoundTripper.RoundTrip(r)
}

var subjectForm = regexp.MustCompile(`^[!-~]{1,200}$`)

func (o *OIDC) get() (*oidc.IDTokenVerifier, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.verifier != nil {
		return o.verifier, nil
	}
	if time.Since(o.failed) < askAgain {
		return nil, errors.New("the identity provider did not answer a moment ago")
	}
	client := &http.Client{Timeout: askTime}
	if o.Client != nil {
		*client = *o.Client
	}
	client.Transport = &seldom{client.Transport, rate.NewLimiter(rate.Every(askAgain), askAtOnce)}
	// The provider's keys are fetched later, with this context.
	p, err := oidc.NewProvider(oidc.ClientContext(context.Background(), client), o.Issuer)
	if err != nil {
		o.failed = time.Now()
		return nil, fmt.Errorf("the identity provider: %w", err)
	}
	o.verifier = p.Verifier(&oidc.Config{ClientID: o.ClientID, SupportedSigningAlgs: signatures, Now: o.Now})
	return o.verifier, nil
}

// Verify returns whose token this is. Who is in several groups has what the
// grants of the highest role among them give, and nothing of the others.
func (o *OIDC) Verify(ctx context.Context, text string) (*Identity, error) {
	v, err := o.get()
	if err != nil {
		return nil, err
	}
	t, err := v.Verify(ctx, text)
	if err != nil {
		var expired *oidc.TokenExpiredError
		if errors.As(err, &expired) {
			return nil, fmt.Errorf("the identity provider's token expired at %s", expired.Expiry.UTC().Format(time.RFC3339))
		}
		return nil, fmt.Errorf("the token is not one of the identity provider's: %s", strings.TrimPrefix(err.Error(), "oidc: "))
	}
	var claims map[string]any
	if err := t.Claims(&claims); err != nil {
		return nil, fmt.Errorf("the identity provider's token: %w", err)
	}
	name := t.Subject
	if mail, ok := claims["email"].(string); ok && claims["email_verified"] == true {
		name = mail
	}
	if !subjectForm.MatchString(name) {
		return nil, errors.New("the identity provider's token names nobody that can be named here")
	}
	// No token of ours has a name with a colon: the two do not mix.
	id := &Identity{User: "oidc:" + name, Expires: t.Expiry}
	groups := texts(claims[orDefault(o.GroupsClaim, "groups")])
	for _, g := range o.Grants {
		if !slices.Contains(groups, g.Group) || roles[g.Role] < roles[id.Role] {
			continue
		}
		if roles[g.Role] > roles[id.Role] {
			id.Role, id.Namespaces = g.Role, nil
		}
		id.Namespaces = append(id.Namespaces, g.Namespaces...)
	}
	if id.Role == "" {
		return nil, fmt.Errorf("%s is in no group that may do anything here", name)
	}
	slices.Sort(id.Namespaces)
	id.Namespaces = slices.Compact(id.Namespaces)
	return id, nil
}

func orDefault(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// texts returns a claim that is a text or a list of them.
func texts(claim any) (out []string) {
	switch c := claim.(type) {
	case string:
		return []string{c}
	case []any:
		for _, x := range c {
			if s, ok := x.(string); ok {
				out = append(out, s)
			}
		}
	}
	return out
}
