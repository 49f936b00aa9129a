package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// sign signs claims.
func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, kid string, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := s.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Tokens of a provider count if they are its own, for us, of today, and of
// somebody in a group; nothing else does.
func TestOIDC(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	issuer := httptest.NewServer(mux)
	defer issuer.Close()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(map[string]any{"issuer": issuer.URL, "jwks_uri": issuer.URL + "/keys", "authorization_endpoint": issuer.URL,
			"token_endpoint": issuer.URL, "id_token_signing_alg_values_supported": []string{"RS256", "ES256", "none", "HS256"}})
	})
	var asked atomic.Int64
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: rsaKey.Public(), KeyID: "r", Use: "sig"}, {Key: ecKey.Public(), KeyID: "e", Use: "sig"}}})
	})
	var grants []Grant
	for _, s := range []string{"soil=submitter:soil,default", "water=submitter:water", "readers=viewer:secret", "x=y=admin:*"} {
		g, err := ParseGrant(s)
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	o := &OIDC{Issuer: issuer.URL, ClientID: "ulisse", Grants: grants, Client: client}
	now := time.Now()
	claims := func(more map[string]any) map[string]any {
		c := map[string]any{"iss": issuer.URL, "aud": "ulisse", "sub": "ann", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "groups": []string{"soil", "readers", "others"}}
		for k, v := range more {
			c[k] = v
		}
		return c
	}
	for name, c := range map[string]struct {
		text, user string
		role       state.Role
		namespaces []string
	}{
		"RS256":         {sign(t, jose.RS256, rsaKey, "r", claims(nil)), "oidc:ann", state.Submitter, []string{"default", "soil"}},
		"ES256":         {sign(t, jose.ES256, ecKey, "e", claims(map[string]any{"groups": []string{"water", "soil"}})), "oidc:ann", state.Submitter, []string{"default", "soil", "water"}},
		"verified mail": {sign(t, jose.ES256, ecKey, "e", claims(map[string]any{"email": "ann@x.org", "email_verified": true, "groups": "readers"})), "oidc:ann@x.org", state.Viewer, []string{"secret"}},
		"any mail":      {sign(t, jose.ES256, ecKey, "e", claims(map[string]any{"email": "boss@x.org", "groups": "x=y"})), "oidc:ann", state.Admin, []string{"*"}},
	} {
		id, err := o.Verify(t.Context(), c.text)
		if err != nil || id.User != c.user || id.Role != c.role || !slices.Equal(id.Namespaces, c.namespaces) || id.Expires.Unix() != now.Add(time.Hour).Unix() {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "."
	payload, _ := json.Marshal(claims(nil))
	unsigned += base64.RawURLEncoding.EncodeToString(payload) + "."
	good := sign(t, jose.ES256, ecKey, "e", claims(nil))
	for name, c := range map[string]struct{ text, message string }{
		"wrong audience": {sign(t, jose.RS256, rsaKey, "r", claims(map[string]any{"aud": "other"})), "audience"},
		"expired":        {sign(t, jose.RS256, rsaKey, "r", claims(map[string]any{"exp": now.Add(-time.Hour).Unix()})), "expired at"},
		"wrong issuer":   {sign(t, jose.RS256, rsaKey, "r", claims(map[string]any{"iss": "https://evil.example"})), "different provider"},
		"unknown key":    {sign(t, jose.ES256, stranger, "s", claims(nil)), "not one of the identity provider's"},
		"another's key":  {sign(t, jose.ES256, stranger, "e", claims(nil)), "not one of the identity provider's"},
		"no signature":   {unsigned, "not one of the identity provider's"},
		"shared secret":  {sign(t, jose.HS256, x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey), "r", claims(nil)), "not one of the identity provider's"},
		"cut":            {good[:len(good)-4], "not one of the identity provider's"},
		"no groups":      {sign(t, jose.RS256, rsaKey, "r", claims(map[string]any{"groups": []string{"others"}})), "ann is in no group"},
		"no name":        {sign(t, jose.RS256, rsaKey, "r", claims(map[string]any{"sub": "a\nb"})), "names nobody"},
		"nothing":        {"x.y.z", "not one of the identity provider's"},
	} {
		if id, err := o.Verify(t.Context(), c.text); err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %+v, %v, not %q", name, id, err, c.message)
		}
	}
	// Whoever makes up keys does not make us ask for each.
	for range 100 {
		if _, err := o.Verify(t.Context(), sign(t, jose.ES256, stranger, rand.Text(), claims(nil))); err == nil {
			t.Fatal("a token of a stranger is taken")
		}
	}
	if n := asked.Load(); n > 2*askAtOnce {
		t.Errorf("the provider was asked for its keys %d times", n)
	}
	// A guard takes both kinds of tokens.
	g := NewGuard(Config{Required: true, Source: &fakeState{}, Foreign: o.Verify})
	if id, err := g.who(incoming("authorization", "Bearer "+good)); err != nil || id.User != "oidc:ann" {
		t.Errorf("%+v, %v", id, err)
	}
	down := &OIDC{Issuer: "http://127.0.0.1:1", ClientID: "ulisse", Client: client}
	for _, want := range []string{"the identity provider: ", "did not answer a moment ago"} {
		if _, err := down.Verify(t.Context(), good); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a provider that does not answer: %v", err)
		}
	}
	for _, bad := range []string{"", "soil", "=admin:*", "soil=king:x", "soil=admin", "soil=admin:", "soil=admin:a b", "soil=worker:*"} {
		if g, err := ParseGrant(bad); err == nil {
			t.Errorf("%q is taken for %+v", bad, g)
		}
	}
}
