package server

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/blob"
	"github.com/ulisse-gp/ulisse/internal/blobnet"
	"github.com/ulisse-gp/ulisse/internal/coordinator"
)

// Times of latent vectors.
const (
	// latentSuperseded is how long those that no chain goes on from any more are kept: a
	// backup copies them after the state that names them.
	latentSuperseded = 2 * time.Minute
	latentUnused     = time.Hour // how long those are kept that no checkpoint has named
	latentUploads    = 256       // at once: every chain may be at it
)

// latents is the Latents service of a coordinator.
type latents struct {
	pb.UnsafeLatentsServer
	*blobnet.Service
	store *blob.Store
}

// openLatents opens the store of a coordinator's latent vectors in dir. members returns
// all coordinators. Of superseded and every, how long those that were superseded are
// kept and the time between rounds of Sync, zero means the default.
func openLatents(dir string, reserve int64, self string, coord *coordinator.Coordinator, members func() []blobnet.Peer, superseded, every time.Duration, log *slog.Logger) (*latents, error) {
	if superseded == 0 {
		superseded = latentSuperseded
	}
	store, err := blob.Open(filepath.Join(dir, "latents"), blob.Options{Reserve: reserve})
	if err != nil {
		return nil, fmt.Errorf("opening the latent vectors: %w", err)
	}
	s, err := blobnet.New(blobnet.Config{Store: store, Self: self, Registry: coord.Latents(members, superseded), Log: log,
		Grace: latentUnused, Interval: every, MaxUploads: latentUploads,
		Dial: func(p blobnet.Peer) (pb.DataClient, error) {
			conn, err := coord.Conn(p.Address)
			return pb.NewLatentsClient(conn), err
		}})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &latents{Service: s, store: store}, nil
}

// Close ends the service and closes its store.
func (l *latents) Close() error {
	l.Service.Close()
	return l.store.Close()
}
