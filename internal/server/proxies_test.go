package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Of whom a request is counts by who sent it, and by what proxies say, and by
// nobody else's word.
func TestProxies(t *testing.T) {
	p, err := parseProxies([]string{"10.0.0.0/8", "192.168.1.1", "fd00::/8"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from string
		said []string
		want string
	}{
		{"1.2.3.4:5", nil, "1.2.3.4:5"},
		{"1.2.3.4:5", []string{"9.9.9.9"}, "1.2.3.4:5"}, // no proxy
		{"10.1.1.1:5", []string{"9.9.9.9"}, "9.9.9.9:0"},
		{"10.1.1.1:5", []string{"8.8.8.8, 9.9.9.9"}, "9.9.9.9:0"},
		{"10.1.1.1:5", []string{"8.8.8.8", "9.9.9.9, 10.2.2.2"}, "9.9.9.9:0"},
		{"192.168.1.1:5", []string{"2001:db8::1"}, "[2001:db8::1]:0"},
		{"192.168.1.2:5", []string{"2001:db8::1"}, "192.168.1.2:5"},
		{"[fd00::1]:5", []string{"::ffff:9.9.9.9"}, "9.9.9.9:0"},
		{"10.1.1.1:5", []string{"nonsense"}, "10.1.1.1:5"},
		{"10.1.1.1:5", []string{"nonsense, 10.3.3.3"}, "10.3.3.3:0"},
		{"10.1.1.1:5", nil, "10.1.1.1:5"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.from
		for _, v := range c.said {
			r.Header.Add("X-Forwarded-For", v)
		}
		p.clients(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.RemoteAddr != c.want || r.Header.Get("X-Forwarded-For") != "" {
				t.Errorf("%+v: from %s, %q", c, r.RemoteAddr, r.Header)
			}
		})).ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, bad := range []string{"", "lab", "10.0.0.0/33", "10.0.0.1:7"} {
		if _, err := parseProxies([]string{bad}); err == nil {
			t.Errorf("%q is taken for a network", bad)
		}
	}
}
