package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/ulisse-gp/ulisse/internal/auth"
)

// provider is an OpenID Connect provider, and what signs its id tokens.
func provider(t *testing.T) (url string, sign func(claims map[string]any) string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": s.URL, "jwks_uri": s.URL + "/keys", "authorization_endpoint": s.URL, "token_endpoint": s.URL})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "e", Use: "sig"}}})
	})
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "e"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s.URL, func(claims map[string]any) string {
		payload, err := json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign(payload)
		if err != nil {
			t.Fatal(err)
		}
		text, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
}

// An Ingress that signs users in passes their id token on with each request
// (deploy/k8s/examples/oidc): pages and the API are then those of that user, and
// who is in no group sees nothing.
func TestPagesOfWhoIsSignedIn(t *testing.T) {
	issuer, sign := provider(t)
	g := startGuarded(t, 1, func(c *Coordinator) {
		c.OIDC = &auth.OIDC{Issuer: issuer, ClientID: "CLIENT-ID"}
		c.Grants = []string{"statistics=submitter:default"}
	})
	token := func(groups ...string) string {
		return sign(map[string]any{"iss": issuer, "aud": "CLIENT-ID", "sub": "1", "email": "ada@example.org", "email_verified": true,
			"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "groups": groups})
	}
	if code, page := g.web(0, http.MethodGet, "/", token("statistics"), nil); code != http.StatusOK || !strings.Contains(page, "<html") || strings.Contains(page, `action="/login"`) {
		t.Errorf("the page of jobs: %d: %.300s", code, page)
	}
	if code, text := g.web(0, http.MethodGet, "/v1/whoami", token("statistics"), nil); code != http.StatusOK || !strings.Contains(text, "oidc:ada@example.org") || !strings.Contains(text, "submitter") {
		t.Errorf("who am I: %d: %s", code, text)
	}
	if code, text := g.web(0, http.MethodGet, "/v1/jobs", token("others"), nil); code == http.StatusOK {
		t.Errorf("who is in no group sees the jobs: %s", text)
	}
}
