package server

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// patience is how long a port waits for whoever has connected. Nobody holds a
// connection, and what it takes here, by being slow: handshakes, headers and
// bodies of JSON have to be over in time, and where something long is sent or
// received each piece has to.
type patience struct {
	handshake time.Duration // TLS and gRPC, and raft's first byte
	header    time.Duration // of a request of HTTP
	body      time.Duration // of a request in JSON
	piece     time.Duration // of an answer: until the client takes it
	idle      time.Duration // between requests of HTTP
	stranger  time.Duration // until it is known whose a connection is
}

var usual = patience{stranger: 15 * time.Second, handshake: 10 * time.Second, header: 10 * time.Second, body: 30 * time.Second, piece: time.Minute, idle: 2 * time.Minute}

func (s Security) waits() patience {
	if s.patience == (patience{}) {
		return usual
	}
	return s.patience
}

// headerBytes bounds the header of a request.
const headerBytes = 64 << 10

// newHTTP returns a server, with TLS if there are certificates.
func newHTTP(h http.Handler, src *tlsconf.Source, p patience, log *slog.Logger) *http.Server {
	s := &http.Server{Handler: p.pieces(h), ReadHeaderTimeout: p.header, IdleTimeout: p.idle, MaxHeaderBytes: headerBytes,
		ConnContext: connContext, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	if src != nil {
		s.TLSConfig = src.Server([]string{"h2", "http/1.1"})
		s.ConnState = src.ConnState
	}
	return s
}

// serveHTTP serves a listener until the server is closed.
func serveHTTP(s *http.Server, l net.Listener) error {
	if s.TLSConfig != nil {
		return s.ServeTLS(l, "", "")
	}
	return s.Serve(l)
}

// pieces bounds the time that a client takes for each piece of an answer.
func (p patience) pieces(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		h.ServeHTTP(&pieceWriter{w, c, p.piece}, r)
		_ = c.SetWriteDeadline(time.Now().Add(p.piece)) // what is still in buffers
	})
}

type pieceWriter struct {
	http.ResponseWriter
	c    *http.ResponseController
	most time.Duration
}

func (w *pieceWriter) Write(b []byte) (int, error) {
	_ = w.c.SetWriteDeadline(time.Now().Add(w.most))
	return w.ResponseWriter.Write(b)
}

// Flush sends what is in buffers.
func (w *pieceWriter) Flush() {
	_ = w.c.SetWriteDeadline(time.Now().Add(w.most))
	_ = w.c.Flush()
}

// Unwrap is for http.ResponseController.
func (w *pieceWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// bodies reads the body of a request in JSON before h sees it, in time or not at
// all. receive counts it for its sender meanwhile.
func (p patience) bodies(h http.Handler, receive func(*http.Request) (end func(), err error), fail func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			h.ServeHTTP(w, r)
			return
		}
		end, err := receive(r)
		if err != nil {
			fail(w, r, err)
			return
		}
		defer end()
		c := http.NewResponseController(w)
		_ = c.SetReadDeadline(time.Now().Add(p.body))
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large): // as h would have met it
			r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(text), failing{err}))
		case errors.Is(err, os.ErrDeadlineExceeded):
			fail(w, r, status.Errorf(codes.DeadlineExceeded, "the body: it did not come within %v", p.body))
			return
		case err != nil:
			fail(w, r, badBody("it ended early"))
			return
		default:
			r.Body = io.NopCloser(bytes.NewReader(text))
		}
		_ = c.SetReadDeadline(time.Time{})
		end()
		h.ServeHTTP(w, r)
	})
}

// unread lets a request be answered whose body nobody will read. The server would
// wait for it otherwise, before it answers.
func unread(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // a recorder in a test has none
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
