package joblog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// peers notes what each was sent; those that hang do not answer before their
// context is done.
type peers struct {
	mu    sync.Mutex
	got   map[string][]string
	hangs map[string]bool
	calls map[string]int
}

func newPeers(hangs ...string) *peers {
	p := &peers{got: map[string][]string{}, hangs: map[string]bool{}, calls: map[string]int{}}
	for _, h := range hangs {
		p.hangs[h] = true
	}
	return p
}

func (p *peers) send(ctx context.Context, peer string, b Batch) {
	p.mu.Lock()
	p.calls[peer]++
	hangs := p.hangs[peer]
	p.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range b.Entries {
		p.got[peer] = append(p.got[peer], b.Job+" "+e.Text)
	}
}

func (p *peers) of(peer string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got[peer])
}

func batch(text string) Batch { return Batch{Job: "a", Entries: []Entry{{Text: text}}} }

func within(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// Every peer gets every batch, in order, though one of them hangs; and Close ends
// what hangs.
func TestCopy(t *testing.T) {
	p := newPeers("slow")
	c := NewCopier(p.send)
	var want []string
	for i := range 100 {
		c.Copy([]string{"x", "slow", "y"}, batch(fmt.Sprint(i)))
		want = append(want, fmt.Sprint("a ", i))
	}
	for _, peer := range []string{"x", "y"} {
		within(t, peer, func() bool { return len(p.of(peer)) == len(want) })
		if got := p.of(peer); !slices.Equal(got, want) {
			t.Errorf("%s got %q", peer, got)
		}
	}
	c.Close()
	c.Close()
	c.Copy([]string{"z"}, batch("late"))
	if p.calls["slow"] != 1 || p.calls["z"] != 0 {
		t.Errorf("%v", p.calls)
	}
}

// What waits for a peer that hangs is bounded, in number and in bytes.
func TestQueueIsBounded(t *testing.T) {
	for name, b := range map[string]Batch{"small": batch("x"), "large": batch(strings.Repeat("x", MaxLine))} {
		p := newPeers("slow")
		c := NewCopier(p.send)
		for range 3 * queueLength {
			c.Copy([]string{"slow"}, b)
		}
		c.mu.Lock()
		q := c.queues["slow"]
		n, bytes := len(q.batches), q.bytes.Load()
		c.mu.Unlock()
		if n > queueLength || bytes > queueBytes || n < queueLength && bytes < queueBytes-b.size() {
			t.Errorf("%s: %d batches of %d bytes wait", name, n, bytes)
		}
		c.Close()
	}
}

// A peer that has left is forgotten, and served again when it comes back.
func TestPeerLeaves(t *testing.T) {
	p := newPeers()
	c := NewCopier(p.send)
	defer c.Close()
	c.Copy([]string{"x", "y"}, batch("one"))
	c.Copy([]string{"y"}, batch("two"))
	c.mu.Lock()
	if len(c.queues) != 1 {
		t.Errorf("%d queues", len(c.queues))
	}
	c.mu.Unlock()
	c.Copy([]string{"x", "y"}, batch("three"))
	within(t, "y", func() bool { return len(p.of("y")) == 3 })
	within(t, "x", func() bool { return len(p.of("x")) == 2 })
	if got := p.of("x"); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"a one", "a three"}) {
		t.Errorf("x got %q", got)
	}
}
