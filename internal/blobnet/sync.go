package blobnet

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ulisse-gp/ulisse/internal/blob"
)

// Sync keeps this coordinator's blobs as they should be until ctx ends: at once,
// then every Interval, and whenever Kick is called.
func (s *Service) Sync(ctx context.Context) {
	if s.Registry == nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	for {
		if err := s.Reconcile(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("blobs are not all in place; trying again", "err", err)
		}
		t := time.NewTimer(s.Interval)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		case <-s.kick:
			t.Stop()
		}
	}
}

// Kick makes Sync look at once, as after a change of members.
func (s *Service) Kick() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Reconcile is one round of Sync: over all blobs, or over those that have changed
// where the registry can tell.
func (s *Service) Reconcile(ctx context.Context) error {
	err := s.Registry.Tidy(ctx, s.Grace)
	if c, ok := s.Registry.(Changes); ok {
		return errors.Join(err, s.changes.reconcile(ctx, s, c))
	}
	return errors.Join(err, s.reconcileAll(ctx))
}

// reconcileAll fetches the blobs that this coordinator is
// to hold and lacks, tells the registry of those that it has, and deletes what is not
// in the registry and was not used for Grace.
func (s *Service) reconcileAll(ctx context.Context) error {
	var errs []error
	peers := s.Registry.Peers()
	for _, e := range s.Registry.All() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		errs = append(errs, s.hold(ctx, e, peers))
	}
	recorded := func(addr string) bool {
		_, ok := s.Registry.Lookup(addr)
		return ok
	}
	gone, err := s.Store.Collect(recorded, s.Grace)
	errs = append(errs, err)
	expired, err := s.Store.ExpirePartials(s.PartialAge)
	errs = append(errs, err)
	if gone = append(gone, expired...); len(gone) > 0 {
		s.Log.Info("blobs without use removed", "blobs", gone)
	}
	return errors.Join(errs...)
}

// hold sees to it that this coordinator has a blob, if it should, and that this
// is known.
func (s *Service) hold(ctx context.Context, e Blob, peers []Peer) error {
	here, err := s.bringHere(ctx, e, peers)
	if err != nil || !here || slices.Contains(e.Holders, s.Self) {
		return err
	}
	e, ok := s.Registry.Lookup(e.Addr) // fetching may have taken long
	if !ok {
		return nil
	}
	e.Holders = joint(e.Holders, s.Self, s.Registry.Peers())
	return s.Registry.Record(ctx, e)
}

// bringHere fetches a blob if this coordinator should have it and lacks it, and
// reports whether it is here.
func (s *Service) bringHere(ctx context.Context, e Blob, peers []Peer) (here bool, err error) {
	in, err := s.Store.Stat(e.Addr)
	if err != nil && !errors.Is(err, blob.ErrNotFound) {
		return false, err
	}
	if in.Complete || !shouldHold(s.Self, e.Addr, peers) {
		return in.Complete, nil
	}
	if err := s.fetch(ctx, e.Addr); err != nil {
		return false, err
	}
	s.Log.Info("blob fetched", "blob", e.Addr, "bytes", e.Size)
	return true, nil
}
