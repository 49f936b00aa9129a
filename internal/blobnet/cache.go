package blobnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ulisse-gp/ulisse/internal/blob"
)

// Cache is a worker's store of blobs. What is not there is fetched; what was not
// used for the longest time makes room.
type Cache struct {
	store   *blob.Store
	budget  int64 // bytes
	sources func(addr string) []Source
	fetches flights

	hits, misses atomic.Int64

	mu     sync.Mutex
	coming map[string]int64 // sizes of the blobs that are being fetched
}

// NewCache returns a cache of at most budget bytes over a store that nobody else
// writes to; 0: no limit. sources returns the nodes to ask for a blob in the order in which
// they are tried, coordinators or other workers; it is called for every fetch.
func NewCache(store *blob.Store, budget int64, sources func(addr string) []Source) *Cache {
	return &Cache{store: store, budget: budget, sources: sources, coming: map[string]int64{}}
}

// Get returns a blob to read, fetching it if need be. Callers that want the same
// blob share one fetch. The blob is not evicted until the reader is closed.
func (c *Cache) Get(ctx context.Context, addr string) (*blob.Reader, error) {
	var err error
	for try := range 3 { // it may be evicted, or have decayed, before it is opened
		var r *blob.Reader
		r, err = c.store.Open(addr)
		if try == 0 {
			c.count(err == nil)
		}
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, blob.ErrNotFound) && !errors.Is(err, blob.ErrCorrupt) {
			return nil, err
		}
		if err = c.fetches.do(ctx, addr, func(ctx context.Context) error { return c.fetch(ctx, addr) }); err != nil {
			break
		}
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("blob %s: %w", addr, err)
	}
	return nil, err
}

func (c *Cache) count(hit bool) {
	if hit {
		c.hits.Add(1)
	} else {
		c.misses.Add(1)
	}
}

// Counts returns how many blobs were there when they were asked for, and how
// many were not.
func (c *Cache) Counts() (hits, misses int64) { return c.hits.Load(), c.misses.Load() }

// Close waits for fetches to end; the contexts of their callers end them.
func (c *Cache) Close() { c.fetches.wait() }

func (c *Cache) fetch(ctx context.Context, addr string) error {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.coming, addr)
	}()
	return Fetch(ctx, c.store, addr, c.sources(addr), func(size int64) error { return c.admit(addr, size) })
}

// admit makes room for a blob and sets it aside.
func (c *Cache) admit(addr string, size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.coming[addr] = size
	if c.budget == 0 {
		return nil
	}
	var total int64
	for _, n := range c.coming {
		total += n
	}
	here, err := c.store.List()
	if err != nil {
		return err
	}
	here = slices.DeleteFunc(here, func(in blob.Info) bool {
		_, coming := c.coming[in.Addr]
		return coming // counted in full
	})
	for _, in := range here {
		total += in.Present
	}
	slices.SortFunc(here, func(a, b blob.Info) int {
		if a.Complete != b.Complete { // fetches that were given up go first
			return cmp.Compare(btoi(a.Complete), btoi(b.Complete))
		}
		return a.Used.Compare(b.Used)
	})
	for _, in := range here {
		if total <= c.budget {
			return nil
		}
		switch err := c.store.Delete(in.Addr); {
		case err == nil || errors.Is(err, blob.ErrNotFound):
			total -= in.Present
		case !errors.Is(err, blob.ErrInUse) && !errors.Is(err, blob.ErrBusy):
			return err
		}
	}
	if total > c.budget {
		return fmt.Errorf("it has %d bytes, and of the cache's %d bytes %d are in use: give the worker a larger cache", size, c.budget, total-size)
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
