package blobnet

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ulisse-gp/ulisse/internal/blob"
)

// lookEvery is how often a Service looks at all blobs though it is told of changes:
// disks decay, and somebody may have cleared one.
const lookEvery = time.Hour

// changes is what a round of Sync has left to do for the next one. Only Reconcile
// uses it.
type changes struct {
	// left are the addresses to look at, with how long a blob that is not recorded
	// must have been out of use to be deleted.
	left   map[string]time.Duration
	looked time.Time // at all blobs
	peers  []Peer    // then
}

// reconcile has this coordinator hold what was recorded and delete what was forgotten
// since the last round. What it cannot do yet is left for the next.
func (c *changes) reconcile(ctx context.Context, s *Service, reg Changes) error {
	if c.left == nil {
		c.left = map[string]time.Duration{}
	}
	var errs []error
	addrs, ok := reg.Changes()
	for _, addr := range addrs {
		c.left[addr] = s.Interval // it may be about to be recorded anew
	}
	peers := s.Registry.Peers()
	if !ok || s.Now().Sub(c.looked) >= lookEvery || !slices.Equal(peers, c.peers) {
		if err := c.lookAtAll(s); err != nil {
			return err
		}
		c.looked, c.peers = s.Now(), peers
		_, err := s.Store.ExpirePartials(s.PartialAge)
		errs = append(errs, err)
	}
	for addr, age := range c.left {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		done, err := s.settle(ctx, addr, age, peers)
		if done {
			delete(c.left, addr)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// lookAtAll notes all that is recorded, or here.
func (c *changes) lookAtAll(s *Service) error {
	here, err := s.Store.List()
	if err != nil {
		return err
	}
	for _, in := range here {
		if _, ok := c.left[in.Addr]; in.Complete && !ok {
			c.left[in.Addr] = s.Grace // it may not be recorded yet
		}
	}
	for _, e := range s.Registry.All() {
		c.left[e.Addr] = s.Interval
	}
	return nil
}

// settle has a blob held or deleted, as the registry has it. done says that nothing
// more is to be done.
func (s *Service) settle(ctx context.Context, addr string, age time.Duration, peers []Peer) (done bool, err error) {
	if e, ok := s.Registry.Lookup(addr); ok {
		_, err := s.bringHere(ctx, e, peers) // that it is here too need not be recorded: blobs come and go
		return err == nil, err
	}
	in, err := s.Store.Stat(addr)
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return true, nil
	case err != nil || s.Now().Sub(in.Used) < age:
		return false, err
	}
	switch err := s.Store.Delete(addr); {
	case err == nil, errors.Is(err, blob.ErrNotFound):
		return true, nil
	case errors.Is(err, blob.ErrInUse), errors.Is(err, blob.ErrBusy):
		return false, nil
	default:
		return false, err
	}
}
