package server

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// sessionCookie holds the token of a browser's user. Its prefix lets browsers
// take it from this host only, over TLS or from this machine.
const sessionCookie = "__Host-ulisse"

// sessionTime is how long a browser keeps the cookie of a token without end.
const sessionTime = 12 * time.Hour

// maxForm bounds what is read of a sign-in.
const maxForm = 32 << 10

// signIn lets browsers use the HTTP port: a form takes a token and makes a
// cookie of it, and the cookie counts as the token. Nothing is kept here, so any
// coordinator takes it, and a token that is revoked ends the session. Where there are
// certificates the page says how a browser comes to one.
type signIn struct {
	users         pb.UsersClient
	certs, tokens bool // by which the port knows people
}

func newSignIn(users pb.UsersClient, certs, tokens bool) *signIn {
	return &signIn{users: users, certs: certs, tokens: tokens}
}

// register adds the pages of the sign-in.
func (s *signIn) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) { s.form(w, r, http.StatusOK, "") })
	mux.HandleFunc("POST /login", s.take)
	mux.HandleFunc("POST /logout", func(w http.ResponseWriter, r *http.Request) {
		setSession(w, "", -1)
		http.Redirect(w, r, "/login", http.StatusSeeOther)
	})
}

// sessions lets a cookie count as the token that it holds. That other sites'
// pages do not act with it is for sites to see to.
func (s *signIn) sessions(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := r.Cookie(sessionCookie)
		if err == nil && r.Header.Get("Authorization") == "" {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+c.Value)
			w.Header().Set("Cache-Control", "no-store")
		}
		next.ServeHTTP(w, r)
	})
}

type viewerKey struct{}

// protect lets those see pages whom the cluster knows, and lets the calls of a
// page be those of its viewer. Others are led to the sign-in.
func (s *signIn) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := outgoing(r)
		who, err := s.users.WhoAmI(ctx, &pb.WhoAmIRequest{})
		switch {
		case status.Code(err) == codes.Unauthenticated && r.Method == http.MethodGet && !strings.Contains(r.Header.Get("Accept"), "text/event-stream"):
			http.Redirect(w, r, "/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
			return
		case err != nil:
			http.Error(w, status.Convert(err).Message(), httpStatus(err))
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, viewerKey{}, who)))
	})
}

// viewer returns whoever sees a page.
func viewer(r *http.Request) *pb.Identity {
	who, _ := r.Context().Value(viewerKey{}).(*pb.Identity)
	return who
}

func httpStatus(err error) int {
	switch status.Code(err) {
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// take makes a session of a token.
func (s *signIn) take(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		s.form(w, r, http.StatusBadRequest, "the form could not be read")
		return
	}
	token := strings.TrimSpace(r.PostForm.Get("token"))
	if token == "" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`",;\`, c) }) {
		s.form(w, r, http.StatusBadRequest, "this is not a token")
		return
	}
	r.Header.Set("Authorization", "Bearer "+token)
	who, err := s.users.WhoAmI(outgoing(r), &pb.WhoAmIRequest{})
	if err != nil {
		s.form(w, r, httpStatus(err), status.Convert(err).Message())
		return
	}
	life := sessionTime
	if who.Expires != nil {
		life = min(life, time.Until(who.Expires.AsTime()))
	}
	setSession(w, token, int(max(life, time.Second).Seconds()))
	http.Redirect(w, r, inside(r.PostForm.Get("next")), http.StatusSeeOther)
}

func setSession(w http.ResponseWriter, token string, seconds int) {
	http.SetCookie(w, &http.Cookie{Name: sessionCookie, Value: token, Path: "/", MaxAge: seconds, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
}

// inside returns a path of this host: nobody is led elsewhere.
func inside(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.Contains(next, `\`) {
		return "/"
	}
	return u.RequestURI()
}

var loginPage = template.Must(template.New("login").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in to ulisse</title>
<main>
<h1>Sign in</h1>
{{with .Fault}}<p role="alert">{{.}}</p>{{end}}
{{if .Tokens}}<form method="post" action="/login">
<input type="hidden" name="next" value="{{.Next}}">
<p><label>Token <input type="password" name="token" autocomplete="current-password" required autofocus></label></p>
<p><button>Sign in</button></p>
</form>
<p>An administrator makes tokens: <code>ulisse tokens create</code>.</p>
{{end}}{{if .Certs}}<h2>With a certificate</h2>
<p>{{if .Tokens}}In place of a token the browser can show a certificate.{{else}}This cluster knows people by their certificates, and the browser has shown none.{{end}}
Who keeps the cluster's authority makes one for you, for instance for ada, and gives you the file <code>ada.p12</code> and its password:</p>
<pre>ulisse certs issue --dir ca --role client --name ada
ulisse certs p12 --dir ca --name ada</pre>
<ul>
<li>Firefox: Settings, Privacy &amp; Security, View Certificates, Your Certificates, Import.</li>
<li>Chrome and Edge on Linux: Settings, Privacy and security, Security, Manage certificates, Import.</li>
<li>Other browsers on Windows and macOS: open the file. Windows keeps it among the personal certificates, macOS in the login keychain.</li>
</ul>
<p>Then close the browser, and open <a href="{{.Next}}">this page</a> again: the browser asks which certificate to show.</p>
{{end}}</main>
</html>
`))

// form shows the form, and what was wrong.
func (s *signIn) form(w http.ResponseWriter, r *http.Request, code int, fault string) {
	for k, v := range map[string]string{"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store", "Referrer-Policy": "same-origin",
		"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"} {
		w.Header().Set(k, v)
	}
	w.WriteHeader(code)
	next := inside(cmp.Or(r.PostForm.Get("next"), r.URL.Query().Get("next")))
	_ = loginPage.Execute(w, map[string]any{"Fault": fault, "Next": next, "Certs": s.certs, "Tokens": s.tokens || !s.certs}) // who is gone reads nothing
}
