package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// maxBody bounds the body of a request in JSON.
const maxBody = 4 << 20

// gateway serves the JSON form of the API, its description, uploads, exports, and what
// probes ask: /healthz (the process lives), /readyz (it can answer). conn leads
// to this very process.
func gateway(ctx context.Context, conn *grpc.ClientConn, spool string, reserve int64, node *replica, waits patience, in ways, security string) (*http.ServeMux, error) {
	description, err := openAPI()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		id, _ := node.Leader()
		answer := map[string]any{"leader": id, "applied": node.Applied(), "state_age_seconds": node.Age().Seconds(), "security": security}
		if err := node.Ready(); err != nil {
			answer["trouble"] = err.Error()
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		json.NewEncoder(w).Encode(answer)
	})
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(description)
	})
	marshaler := &runtime.JSONPb{MarshalOptions: protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}}
	api := runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler), runtime.WithIncomingHeaderMatcher(header))
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		pb.RegisterJobsHandler, pb.RegisterWorkersHandler, pb.RegisterClusterHandler, pb.RegisterDataHandler, pb.RegisterUsersHandler,
		pb.RegisterPredictionsHandler, pb.RegisterHistoryHandler,
	} {
		if err := register(ctx, api, conn); err != nil {
			return nil, err
		}
	}
	fail := func(w http.ResponseWriter, r *http.Request, err error) {
		runtime.HTTPError(r.Context(), api, marshaler, w, r, err)
	}
	known := func(h http.Handler) http.Handler { // before a body is read
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if id, err := senderOf(r); err != nil {
				if id != nil {
					in.guard.Refused(r.Context(), id, r.Method+" "+r.URL.Path, err)
				}
				connOf(r.Context()).refuse()
				unread(w)
				fail(w, r, err)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	receive := func(r *http.Request) (func(), error) {
		id, err := senderOf(r)
		if err != nil {
			return nil, err
		}
		return in.guard.Receive(id)
	}
	mux.Handle("/v1/", known(waits.bodies(stateWords(api), receive, fail)))
	up, err := newUploads(spool, pb.NewDataClient(conn), fail)
	if err != nil {
		return nil, err
	}
	up.reserve = reserve
	up.may = submitters(pb.NewUsersClient(conn))
	mux.Handle("PUT /v1/data", known(up))
	mux.Handle("GET /v1/jobs/{id}/export", known(newExports(pb.NewJobsClient(conn), fail)))
	return mux, nil
}

// openAPI returns the description of the API, with a name and the version of this program.
func openAPI() ([]byte, error) {
	var api map[string]any
	if err := json.Unmarshal(pb.OpenAPI, &api); err != nil {
		return nil, fmt.Errorf("the description of the API: %w", err)
	}
	api["info"] = map[string]any{"title": "ulisse", "description": "Jobs, data, predictions and members of a cluster.", "version": version.Version}
	return json.Marshal(api)
}

// stateWords lets a query name states of jobs as commands do: sampling for JOB_STATE_SAMPLING.
func stateWords(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Has("states") {
			for i, word := range q["states"] {
				if s, err := client.ParseState(word); err == nil {
					q["states"][i] = s.String()
				}
			}
			r = r.Clone(r.Context())
			r.URL.RawQuery = q.Encode()
		}
		h.ServeHTTP(w, r)
	})
}

// sender is who sends a request, or why that is not known.
type sender struct {
	id  *auth.Identity
	err error
}

type senderKey struct{}

// senderOf returns who sends a request that has come through ways.web.
func senderOf(r *http.Request) (*auth.Identity, error) {
	s, _ := r.Context().Value(senderKey{}).(sender)
	if s.id == nil && s.err == nil {
		s.err = status.Error(codes.Unauthenticated, "nobody knows who sends this")
	}
	return s.id, s.err
}

// web finds out who sends requests, by their headers. A connection whose sender
// is not known is a stranger's.
func (in ways) web(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := connOf(r.Context())
		end, ok := c.begin()
		if !ok {
			unread(w)
			http.Error(w, "too many requests at once of somebody who has not said who they are", http.StatusTooManyRequests)
			return
		}
		defer end()
		ctx, whoAmI := identity.Incoming(outgoing(r)), pb.Users_WhoAmI_FullMethodName
		var s sender
		if in.gate != nil {
			s.err = in.gate.Check(ctx, whoAmI)
		}
		if s.err == nil {
			s.id, s.err = in.guard.Knows(ctx)
		}
		if s.err == nil {
			if err := c.knows(user); err != nil {
				s.err = status.Error(codes.Unavailable, err.Error())
			}
		}
		ctx = context.WithValue(r.Context(), senderKey{}, s)
		if s.err == nil {
			var done func()
			ctx, done = in.guard.Valid(ctx, s.id)
			defer done()
		}
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// namespaceHeader names the namespace that a request works in.
const namespaceHeader = "Ulisse-Namespace"

// header passes on no header but the one of ours: not those by which nodes mark
// calls. The gateway itself passes on who asks, and from where.
func header(key string) (string, bool) {
	if key == namespaceHeader {
		return rpc.Namespace, true
	}
	return "", false
}

// outgoing is the context of a call for a request that the gateway has no hand
// in, with what the gateway would pass on.
func outgoing(r *http.Request) context.Context {
	md := metadata.MD{}
	if v := r.Header.Values("Authorization"); len(v) > 0 {
		md.Set(rpc.Authorization, v...)
	}
	if v := r.Header.Values(namespaceHeader); len(v) > 0 {
		md.Set(rpc.Namespace, v...)
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		md.Set(rpc.ForwardedFor, host)
	}
	return metadata.NewOutgoingContext(r.Context(), md)
}
