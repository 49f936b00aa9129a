package server

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Pages of other sites can neither act on a port that asks nobody who they are,
// nor read from it under a name of theirs that leads to it.
func TestOtherSites(t *testing.T) {
	ready := make(chan [2]string, 1)
	start(t, Coordinator{ID: "alone", Dir: t.TempDir(), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", HTTP: "127.0.0.1:0", Advertise: "coordinator.lab:7000",
		BootstrapExpect: 1, Grace: time.Minute, DiskReserve: 1, Logger: slog.New(slog.DiscardHandler), HTTPHosts: []string{"ulisse.lab"},
		Ready: func(grpc, _, http string) { ready <- [2]string{grpc, http} }}.Run)
	at := <-ready
	jobs := pb.NewJobsClient(connect(t, at[0]).conn)
	eventually(t, "a leader", func() bool {
		_, err := jobs.List(t.Context(), &pb.ListJobsRequest{})
		return err == nil
	})
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(method, path, host, body string, headers ...string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+at[1]+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			r.Host = host
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	const spec = `{"spec": "name: x\ndata: {path: /etc/hostname, target: y}\n"}`
	for _, h := range [][]string{
		{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain"},
		{"Origin", "https://evil.example", "Content-Type", "text/plain"},
		{"Sec-Fetch-Site", "same-site", "Content-Type", "application/json"},
		{"Origin", "null"},
	} {
		for _, path := range []string{"/v1/jobs", "/v1/tokens", "/v1/workers/w:drain", "/jobs/x/cancel", "/login"} {
			if code := ask("POST", path, "", spec, h...); code != http.StatusForbidden {
				t.Errorf("POST %s with %v: %d", path, h, code)
			}
		}
		if code := ask("PUT", "/v1/data", "", "x,y\n1,2\n", h...); code != http.StatusForbidden {
			t.Errorf("an upload with %v: %d", h, code)
		}
	}
	for _, host := range []string{"rebind.evil.example", "rebind.evil.example:7002", "evil", "127.0.0.1.evil.example", "[::1].evil.example", ""} {
		if host == "" {
			continue
		}
		for _, path := range []string{"/v1/jobs", "/jobs", "/openapi.json", "/readyz"} {
			if code := ask("GET", path, host, ""); code != http.StatusForbidden {
				t.Errorf("GET %s at %s: %d", path, host, code)
			}
		}
	}
	if l, err := jobs.List(t.Context(), &pb.ListJobsRequest{}); err != nil || len(l.Jobs) > 0 {
		t.Errorf("jobs of other sites: %v, %v", l, err)
	}
	for _, host := range []string{"", "localhost", "localhost:7002", "LOCALHOST", "127.0.0.1:1", "[::1]:7002", "::1", "10.0.0.1", "coordinator.lab", "ulisse.lab:80"} {
		if code := ask("GET", "/v1/jobs", host, ""); code != http.StatusOK {
			t.Errorf("GET at %q: %d", host, code)
		}
	}
	// Programs say nothing of sites, and our own pages that they are ours.
	for _, h := range [][]string{nil, {"Sec-Fetch-Site", "same-origin"}, {"Origin", "http://" + at[1]}} {
		if code := ask("POST", "/v1/jobs", "", `{"spec": "name: ["}`, h...); code != http.StatusBadRequest {
			t.Errorf("POST with %v: %d", h, code)
		}
	}
}
