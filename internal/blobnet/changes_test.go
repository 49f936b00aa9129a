package blobnet

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ulisse-gp/ulisse/internal/blob"
)

// telling is a registry that one node sees, and that tells what has changed. It counts
// how often it is asked for everything.
type telling struct {
	*registry
	news  []string
	lost  bool // it cannot tell
	asked int
}

func (r *telling) All() []Blob { r.asked++; return r.registry.All() }

func (r *telling) Changes() ([]string, bool) {
	news, ok := r.news, !r.lost
	r.news, r.lost = nil, false
	return news, ok
}

// A node fetches what it is told of, deletes what was forgotten once nobody has used it
// for a while, and looks at everything only at first, when it cannot be told, when
// members change, and now and then.
func TestOnlyChangesAreLookedAt(t *testing.T) {
	var regs []*telling
	c := start(t, 3, func(cfg *Config) {
		r := &telling{registry: cfg.Registry.(*registry), lost: true}
		cfg.Registry, cfg.Interval, cfg.Grace = r, time.Minute, time.Hour
		regs = append(regs, r)
	})
	n, reg := c.nodes[2], regs[2]
	round := func() {
		t.Helper()
		if err := n.svc.Reconcile(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	round()
	if reg.asked != 1 {
		t.Fatalf("it looked %d times at everything", reg.asked)
	}
	n.down()
	data := random(1000, 1)
	if _, err := send(c.nodes[0], data); err != nil {
		t.Fatal(err)
	}
	addr := blob.Address(data)
	regs = regs[:2]
	n.up(nil, func(cfg *Config) {
		reg = &telling{registry: c.reg, lost: true}
		cfg.Registry, cfg.Interval, cfg.Grace = reg, time.Minute, time.Hour
	})
	round() // after a restart: at everything
	if !n.has(data) || reg.asked != 1 {
		t.Fatalf("fetched %v, looked %d times", n.has(data), reg.asked)
	}
	more := random(2000, 2)
	c.nodes[1].down() // so that the third has to have it
	if _, err := send(c.nodes[0], more); err != nil {
		t.Fatal(err)
	}
	c.nodes[1].up(nil, nil)
	reg.news = []string{blob.Address(more), addr}
	round()
	if e, _ := c.reg.Lookup(addr); !n.has(more) || reg.asked != 1 || slices.Contains(e.Holders, n.id) {
		t.Errorf("fetched %v, looked %d times, recorded as %v", n.has(more), reg.asked, e.Holders)
	}

	c.reg.mu.Lock()
	delete(c.reg.blobs, addr)
	c.reg.mu.Unlock()
	n.store.Touch(addr) // it may be about to be recorded anew
	reg.news = []string{addr}
	if round(); !n.has(data) {
		t.Error("deleted though it was in use a moment ago")
	}
	c.clock.add(2 * time.Minute)
	if round(); n.has(data) || !n.has(more) || reg.asked != 1 {
		t.Errorf("there: %v %v; looked %d times", n.has(data), n.has(more), reg.asked)
	}

	orphan := random(3000, 3) // of which no registry has heard
	w, err := n.store.Append(blob.Address(orphan), int64(len(orphan)), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.Write(orphan); err == nil {
		err = w.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	reg.lost = true
	if round(); !n.has(orphan) || reg.asked != 2 {
		t.Errorf("deleted what came a moment ago; looked %d times", reg.asked)
	}
	c.clock.add(2 * time.Hour)
	if round(); n.has(orphan) || reg.asked != 3 {
		t.Errorf("an orphan stays: %v; looked %d times", n.has(orphan), reg.asked)
	}
	c.reg.peers = c.reg.peers[1:]
	if round(); reg.asked != 4 {
		t.Errorf("looked %d times after members changed", reg.asked)
	}
}

// What is read is what was asked for, or an error.
func TestRead(t *testing.T) {
	c := start(t, 1, nil)
	data := random(blob.ChunkSize+7, 1)
	if _, err := send(c.nodes[0], data); err != nil {
		t.Fatal(err)
	}
	addr := blob.Address(data)
	got, err := Read(context.Background(), c.nodes[0].client(), addr, int64(len(data)))
	if err != nil || !slices.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := Read(context.Background(), c.nodes[0].client(), addr, 5); err == nil {
		t.Error("bytes of another size")
	}
	if _, err := Read(context.Background(), c.nodes[0].client(), blob.Address([]byte("x")), 1); err == nil {
		t.Error("what nobody has")
	}
}
