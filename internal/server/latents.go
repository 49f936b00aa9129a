package server

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/blob"
	"github.com/ulisse-gp/ulisse/internal/blobnet"
	"github.com/ulisse-gp/ulisse/internal/coordinator"
	"github.com/ulisse-gp/ulisse/internal/latent"
)

// LatentTimes are the times of latent vectors. Of the zero values the default is given.
type LatentTimes struct {
	// Superseded is how long those that no chain goes on from any more are kept;
	// latent.Superseded.
	Superseded time.Duration
	Unused     time.Duration // how long those are kept that no checkpoint has named; 1 h
	Every      time.Duration // between looks at what has changed; 30 s
}

const latentUploads = 256 // at once: every chain may be at it

// latents is what serves a coordinator's latent vectors.
type latents struct {
	*blobnet.Service
	store *blob.Store
}

// openLatents opens the store of a coordinator's latent vectors in dir. members returns
// all coordinators.
func openLatents(dir string, reserve int64, self string, coord *coordinator.Coordinator, members func() []blobnet.Peer, times LatentTimes, log *slog.Logger) (*latents, error) {
	store, err := blob.Open(filepath.Join(dir, "latents"), blob.Options{Reserve: reserve})
	if err != nil {
		return nil, fmt.Errorf("opening the latent vectors: %w", err)
	}
	s, err := blobnet.New(blobnet.Config{Store: store, Self: self, Registry: coord.Latents(members, cmp.Or(times.Superseded, latent.Superseded)), Log: log,
		Grace: cmp.Or(times.Unused, time.Hour), Interval: times.Every, MaxUploads: latentUploads,
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
