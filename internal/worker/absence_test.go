package worker

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A refusal is told at once, what may pass by itself after a while, both once a minute, and
// that the worker has joined when it did.
func TestAbsenceIsTold(t *testing.T) {
	refused := status.Error(codes.Unauthenticated, "no token was sent")
	taken := status.Error(codes.AlreadyExists, "there is a worker w already")
	nobody := status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`)
	joined := errors.New("joined")
	type step struct {
		at   time.Duration
		err  error
		want string // of the line that is told; empty for none
	}
	for name, steps := range map[string][]step{
		"refused": {
			{0, refused, `reason="no token was sent" do="give the token of a worker with --token-file`},
			{time.Second, refused, ""}, {59 * time.Second, refused, ""},
			{60 * time.Second, refused, `reason="no token was sent"`},
			{61 * time.Second, taken, `reason="there is a worker w already" do="give another --id"`},
			{62 * time.Second, joined, "coordinator=c:1 after=1m2s"},
		},
		"nobody listens": {
			{0, nobody, ""}, {4 * time.Second, nobody, ""},
			{5 * time.Second, nobody, `reason="connection refused" do="see whether a coordinator runs`},
			{7 * time.Second, nobody, ""}, {64 * time.Second, nobody, ""}, {65 * time.Second, nobody, `reason="connection refused"`},
		},
		"one refuses, one is down": {
			{0, refused, `reason="no token was sent"`}, {time.Second, nobody, ""}, {2 * time.Second, refused, ""}, {9 * time.Second, nobody, ""},
			{11 * time.Second, refused, ""}, {60 * time.Second, nobody, `reason="connection refused"`}, {62 * time.Second, refused, `reason="no token was sent"`},
			{63 * time.Second, nobody, ""},
		},
		"an election": {
			{time.Second, joined, "coordinator=c:1"}, {time.Hour, io.EOF, ""}, {time.Hour + 4*time.Second, nobody, ""}, {time.Hour + 5*time.Second, joined, "coordinator=c:1"},
			{2 * time.Hour, io.EOF, ""}, {2*time.Hour + 6*time.Second, io.EOF, `reason="the connection was closed"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			a := absence{log: slog.New(slog.NewTextHandler(&out, nil))}
			a.begin(start)
			for _, s := range steps {
				out.Reset()
				if s.err == joined {
					a.joined("c:1", start.Add(s.at))
				} else {
					a.failed(s.err, []string{"c:1"}, start.Add(s.at))
				}
				if got := out.String(); (got == "") != (s.want == "") || !strings.Contains(got, s.want) {
					t.Errorf("after %v, %v: told %q, want %q", s.at, s.err, got, s.want)
				}
				if (a.why() == "") != (s.err == joined) {
					t.Errorf("after %v, %v: the reason is %q", s.at, s.err, a.why())
				}
			}
		})
	}
}
