package worker

import (
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/rpc"
)

// absence is what a worker tells of the time in which no coordinator takes it in.
type absence struct {
	log *slog.Logger

	mu         sync.Mutex
	since      time.Time // that there is no session; zero while there is one
	reason     string    // why the last session ended, or there was none
	told       time.Time // zero while nothing was told of this absence
	toldReason string
}

// Times of what is told. An election takes less than quietFor: nobody needs to hear of it.
const (
	quietFor   = 5 * time.Second
	repeatTold = time.Minute
)

// begin notes that the worker has started: it is absent from then on.
func (a *absence) begin(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = now
}

// joined notes that a coordinator has taken the worker in.
func (a *absence) joined(coordinator string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	args := []any{"coordinator", coordinator}
	if !a.told.IsZero() {
		args = append(args, "after", now.Sub(a.since).Round(time.Second).String())
	}
	a.log.Info("joined the cluster", args...)
	a.since, a.told, a.reason, a.toldReason = time.Time{}, time.Time{}, "", ""
}

// failed notes that a session ended with an error, or that there was none, and tells of
// it: a refusal at once, what may pass by itself after quietFor; both again once in repeatTold, and
// a refusal when its reason is another.
func (a *absence) failed(err error, coordinators []string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		a.since = now
	}
	a.reason = rpc.Plain(status.Convert(err).Message())
	news := a.told.IsZero() || !temporary(err) && a.reason != a.toldReason
	if temporary(err) && now.Sub(a.since) < quietFor || !news && now.Sub(a.told) < repeatTold {
		return
	}
	a.told, a.toldReason = now, a.reason
	a.log.Warn("not in the cluster: trying again", "reason", a.reason, "do", remedy(err), "coordinators", coordinators,
		"since", a.since.Format(time.RFC3339))
}

// why returns the reason of the absence, empty if none is known.
func (a *absence) why() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reason
}

// remedy is what whoever runs the worker can do.
func remedy(err error) string {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return "give the token of a worker with --token-file ('ulisse tokens create NAME --role worker' makes one), or a worker's certificate with --tls-cert and --tls-key"
	case codes.AlreadyExists, codes.InvalidArgument:
		return "give another --id"
	case codes.Unimplemented:
		return "see whether --coordinators are addresses of the coordinators' --listen, and of the same version"
	}
	return "see whether a coordinator runs at one of --coordinators, can be reached from here, and whether both sides speak TLS or neither"
}
