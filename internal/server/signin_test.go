package server

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// A token makes a session, which counts as the token until it is revoked; no
// page of another site can use it.
func TestSignIn(t *testing.T) {
	g := startGuarded(t, 1, nil)
	ann := g.token("ann", "submitter", "default")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(client.CloseIdleConnections)
	do := func(method, path, body string, headers ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, g.http[0]+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != "" {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if r := do("GET", "/login", ""); r.StatusCode != 200 || !strings.Contains(r.Header.Get("Content-Security-Policy"), "form-action 'self'") {
		t.Errorf("the form: %d", r.StatusCode)
	}
	for token, code := range map[string]int{"": 400, "a b": 400, "sesame": 401, "a;b": 400} {
		if r := do("POST", "/login", url.Values{"token": {token}}.Encode()); r.StatusCode != code || len(r.Cookies()) != 0 {
			t.Errorf("signing in with %q: %d, %v", token, r.StatusCode, r.Cookies())
		}
	}
	form := url.Values{"token": {ann.Secret}, "next": {"//evil.example/"}}.Encode()
	if r := do("POST", "/login", form, "Sec-Fetch-Site", "cross-site"); r.StatusCode != http.StatusForbidden {
		t.Errorf("signing in from another site: %d", r.StatusCode)
	}
	r := do("POST", "/login", form, "Sec-Fetch-Site", "same-origin")
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/" || len(r.Cookies()) != 1 {
		t.Fatalf("signing in: %d %q %v", r.StatusCode, r.Header.Get("Location"), r.Cookies())
	}
	c := r.Cookies()[0]
	if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge <= 0 {
		t.Errorf("the cookie: %+v", c)
	}
	cookie := c.Name + "=" + c.Value
	if r := do("GET", "/v1/whoami", "", "Cookie", cookie); r.StatusCode != 200 || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("with the cookie: %d", r.StatusCode)
	}
	for _, h := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}} {
		if r := do("POST", "/v1/jobs/x:cancel", "{}", append(h, "Cookie", cookie)...); r.StatusCode != http.StatusForbidden {
			t.Errorf("another site's page with the cookie, %v: %d", h, r.StatusCode)
		}
	}
	if r := do("POST", "/v1/jobs/x:cancel", "{}", "Sec-Fetch-Site", "same-origin", "Cookie", cookie); r.StatusCode != http.StatusNotFound {
		t.Errorf("our own page with the cookie: %d", r.StatusCode)
	}
	if r := do("POST", "/logout", "", "Cookie", cookie); len(r.Cookies()) != 1 || r.Cookies()[0].MaxAge >= 0 {
		t.Errorf("signing out: %v", r.Cookies())
	}
	if _, err := pb.NewUsersClient(g.admin).RevokeToken(t.Context(), &pb.RevokeTokenRequest{Id: ann.Token.Id}); err != nil {
		t.Fatal(err)
	}
	if r := do("GET", "/v1/whoami", "", "Cookie", cookie); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("the cookie of a revoked token: %d", r.StatusCode)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if r := do("GET", path, ""); r.StatusCode != 200 {
			t.Errorf("%s without a token: %d", path, r.StatusCode)
		}
	}
}

// Pages lead those who are unknown to the sign-in, and know their viewer.
func TestProtectedPages(t *testing.T) {
	g := startGuarded(t, 1, nil)
	s := newSignIn(pb.NewUsersClient(g.as(0, "")), false, true)
	seen := ""
	h := s.sessions(s.protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = viewer(r).GetUser() })))
	ask := func(method string, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/jobs?x=1", nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if w := ask("GET"); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/login?next=%2Fjobs%3Fx%3D1" {
		t.Errorf("a page for somebody unknown: %d %q", w.Code, w.Header().Get("Location"))
	}
	if w := ask("GET", "Accept", "text/event-stream"); w.Code != http.StatusUnauthorized {
		t.Errorf("a stream for somebody unknown: %d", w.Code)
	}
	if w := ask("POST"); w.Code != http.StatusUnauthorized {
		t.Errorf("a form of somebody unknown: %d", w.Code)
	}
	if w := ask("GET", "Cookie", sessionCookie+"="+g.token("ann", "viewer", "default").Secret); w.Code != 200 || seen != "ann" {
		t.Errorf("a page: %d, seen by %q", w.Code, seen)
	}
	for next, want := range map[string]string{"/jobs/a?b=c": "/jobs/a?b=c", "": "/", "https://evil.example/": "/", "//evil.example": "/", `/\evil.example`: "/", "jobs": "/"} {
		if got := inside(next); got != want {
			t.Errorf("%q leads to %q, not %q", next, got, want)
		}
	}
}

// The sign-in says how those are known who come to the port: by tokens, by certificates, or by both.
func TestSignInPage(t *testing.T) {
	for _, c := range []struct{ certs, tokens, form, help bool }{{false, true, true, false}, {true, true, true, true}, {true, false, false, true}} {
		w := httptest.NewRecorder()
		newSignIn(nil, c.certs, c.tokens).form(w, httptest.NewRequest("GET", "/login?next=/jobs/a", nil), 200, "")
		text := w.Body.String()
		if form, help := strings.Contains(text, `name="token"`), strings.Contains(text, "ulisse certs p12") && strings.Contains(text, `<a href="/jobs/a">`); form != c.form || help != c.help {
			t.Errorf("%+v: a form %v, how to come to a certificate %v", c, form, help)
		}
	}
}

// The page of a job is live for whom it is, and ends for whose token is revoked;
// who is of another namespace does not learn that there is such a job.
func TestLivePagesWithTokens(t *testing.T) {
	g := startGuarded(t, 1, nil)
	g.namespace("elsewhere", nil)
	ann, eve := g.token("ann", "submitter", "default"), g.token("eve", "viewer", "elsewhere")
	jobs := pb.NewJobsClient(g.as(0, ann.Secret))
	j, err := jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: tinySpec})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	listen := func(token string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, "GET", g.http[0]+"/events/jobs/"+j.Id, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Accept", "text/event-stream")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	if r := listen(eve.Secret); r.StatusCode != http.StatusNotFound {
		t.Errorf("another namespace's job: %d", r.StatusCode)
	}
	r := listen(ann.Secret)
	if r.StatusCode != 200 {
		t.Fatalf("her own job: %d", r.StatusCode)
	}
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	until := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Fatalf("the stream ended without %q: %v", text, lines.Err())
	}
	until("queued")
	if _, err := jobs.Cancel(t.Context(), &pb.JobActionRequest{Id: j.Id}); err != nil {
		t.Fatal(err)
	}
	until("cancelled")
	if _, err := pb.NewUsersClient(g.admin).RevokeToken(t.Context(), &pb.RevokeTokenRequest{Id: ann.Token.Id}); err != nil {
		t.Fatal(err)
	}
	until("was revoked")
	// The word that the process gives itself is not to be had from outside.
	if code, _ := g.web(0, "GET", "/v1/jobs/"+j.Id, "", nil, "Grpc-Metadata-Ulisse-Inside", "x"); code != http.StatusUnauthorized {
		t.Errorf("with a guessed word: %d", code)
	}
}

// A page ends with its token at once, whatever else comes from its address.
func TestPagesEndWithTheirTokens(t *testing.T) {
	g := startGuarded(t, 1, func(c *Coordinator) { c.Rate = 20 })
	ann := g.token("ann", "submitter", "default")
	jobs := pb.NewJobsClient(g.admin)
	j, err := jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: tinySpec})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", g.http[0]+"/events/jobs/"+j.Id, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+ann.Secret)
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(err, resp.StatusCode)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && !strings.Contains(lines.Text(), "queued") {
	}
	flood, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for range 4 {
		wg.Go(func() {
			for flood.Err() == nil {
				q, _ := http.NewRequestWithContext(flood, "GET", g.http[0]+"/v1/whoami", nil)
				if resp, err := http.DefaultClient.Do(q); err == nil {
					resp.Body.Close()
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	if _, err := pb.NewUsersClient(g.admin).RevokeToken(t.Context(), &pb.RevokeTokenRequest{Id: ann.Token.Id}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * recheckMost)
	if _, err := jobs.Cancel(t.Context(), &pb.JobActionRequest{Id: j.Id}); err != nil {
		t.Fatal(err)
	}
	told := false
	for lines.Scan() {
		if strings.Contains(lines.Text(), "cancelled") {
			t.Error("the page goes on without its token")
		}
		told = told || strings.Contains(lines.Text(), "was revoked")
	}
	if !told || ctx.Err() != nil {
		t.Errorf("the page was told that the token was revoked: %v; it ended: %v", told, ctx.Err() == nil)
	}
}

// recheckMost is how long a stream may outlive its token.
const recheckMost = 600 * time.Millisecond
