// Package monitor serves what operators and their machines ask a process:
// metrics and probes, and profiles if they were allowed, on a port that users do
// not see.
//
//	/metrics    what the process measures, in the text form of Prometheus
//	/livez      the process lives: 200 whenever it can answer at all
//	/startupz   it has opened what it keeps, and listens: 503 before
//	/readyz     it can serve: 503, with the reason, where it cannot
//	/healthz    the same as /livez
//	/debug/pprof/  profiles of the running program (Config.Pprof)
//
// A supervisor restarts what fails /livez (or is not through /startupz in time)
// and sends nothing to what fails /readyz. A coordinator without a leader, or a
// worker without a session, is alive: a restart would mend nothing.
package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Config says what to serve.
type Config struct {
	Address string // host:port to listen on; none if empty
	Pprof   bool   // serve profiles too
}

// Server is the private port of a process. Its Registry takes the collectors of
// all its parts; it holds those of the Go runtime and of the process already.
type Server struct {
	Registry *prometheus.Registry

	address string
	mux     *http.ServeMux
	http    *http.Server
	done    chan struct{}

	mu    sync.Mutex
	ready func() error // nil until Started
	note  string
}

// errStarting is why a process is not ready at first.
var errStarting = errors.New("the process is starting")

// Serve begins to listen and answers until Close. With no address the server
// keeps its registry and answers nobody.
func Serve(c Config) (*Server, error) {
	s := &Server{Registry: NewRegistry(), mux: http.NewServeMux(), done: make(chan struct{})}
	alive := func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) }
	s.mux.HandleFunc("GET /livez", alive)
	s.mux.HandleFunc("GET /healthz", alive)
	s.mux.HandleFunc("GET /startupz", func(w http.ResponseWriter, _ *http.Request) {
		if s.probe() == nil {
			answer(w, errStarting)
			return
		}
		answer(w, nil)
	})
	s.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ready := s.probe(); ready != nil {
			answer(w, cmp.Or(Files(), ready()))
		} else {
			answer(w, errStarting)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.note != "" {
			fmt.Fprintln(w, s.note)
		}
	})
	s.mux.Handle("GET /metrics", promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{Registry: s.Registry, MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	if c.Pprof {
		s.mux.HandleFunc("/debug/pprof/", pprof.Index)
		s.mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		s.mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		s.mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		s.mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	if c.Address == "" {
		close(s.done)
		return s, nil
	}
	lis, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("listening for metrics and probes: %w", err)
	}
	s.address = lis.Addr().String()
	s.http = &http.Server{Handler: s.mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(lis) // until Close
	}()
	return s, nil
}

// Address returns where the server listens, empty if nowhere.
func (s *Server) Address() string { return s.address }

// Handle serves something more under a pattern of http.ServeMux.
func (s *Server) Handle(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

// ServeHTTP answers a request, as the port does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Note adds a line to what /readyz answers.
func (s *Server) Note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note = line
}

// Started says that the process has opened what it keeps and listens. From now
// on ready tells whether it can serve: nil, or why not, in a sentence.
func (s *Server) Started(ready func() error) { s.set(ready) }

// Stopping says that the process is about to end: it is not ready any more.
func (s *Server) Stopping() {
	s.set(func() error { return errors.New("the process is stopping") })
}

func (s *Server) set(ready func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = ready
}

func (s *Server) probe() func() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

// Close ends the server and what it is answering.
func (s *Server) Close() error {
	if s.http == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	<-s.done
	return err
}

// answer answers a probe: 200, or 503 and why.
func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, err)
		return
	}
	fmt.Fprintln(w, "ok")
}
