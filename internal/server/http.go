package server

import (
	"context"
	"encoding/json"
	"net"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/auth"
)

// maxBody bounds the body of a request in JSON.
const maxBody = 4 << 20

// gateway serves the JSON form of the API, its description, uploads, exports, and what
// probes ask: /healthz (the process lives), /readyz (it can answer). conn leads
// to this very process.
func gateway(ctx context.Context, conn *grpc.ClientConn, spool string, reserve int64, node *replica, waits patience, security string) (*http.ServeMux, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		id, _ := node.Leader()
		age := node.Age()
		if id == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		json.NewEncoder(w).Encode(map[string]any{"leader": id, "applied": node.Applied(), "state_age_seconds": age.Seconds(), "security": security})
	})
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(pb.OpenAPI)
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
	mux.Handle("/v1/", waits.bodies(api, fail))
	up, err := newUploads(spool, pb.NewDataClient(conn), fail)
	if err != nil {
		return nil, err
	}
	up.reserve = reserve
	up.may = submitters(pb.NewUsersClient(conn))
	mux.Handle("PUT /v1/data", up)
	mux.Handle("GET /v1/jobs/{id}/export", newExports(pb.NewJobsClient(conn), fail))
	return mux, nil
}

// namespaceHeader names the namespace that a request works in.
const namespaceHeader = "Ulisse-Namespace"

// header passes on no header but the one of ours: not those by which nodes mark
// calls. The gateway itself passes on who asks, and from where.
func header(key string) (string, bool) {
	if key == namespaceHeader {
		return auth.NamespaceKey, true
	}
	return "", false
}

// outgoing is the context of a call for a request that the gateway has no hand
// in, with what the gateway would pass on.
func outgoing(r *http.Request) context.Context {
	md := metadata.MD{}
	if v := r.Header.Values("Authorization"); len(v) > 0 {
		md.Set("authorization", v...)
	}
	if v := r.Header.Values(namespaceHeader); len(v) > 0 {
		md.Set(auth.NamespaceKey, v...)
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		md.Set("x-forwarded-for", host)
	}
	return metadata.NewOutgoingContext(r.Context(), md)
}
