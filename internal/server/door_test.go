package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// from is a connection from some address, of which the other end is held.
type from struct {
	net.Conn
	address *net.TCPAddr
	closed  atomic.Bool
}

func (f *from) RemoteAddr() net.Addr { return f.address }
func (f *from) Close() error {
	f.closed.Store(true)
	return f.Conn.Close()
}

// queue is a listener of connections that are put into it.
type queue chan net.Conn

func (q queue) Accept() (net.Conn, error) { return <-q, nil }
func (queue) Close() error                { return nil }
func (queue) Addr() net.Addr              { return &net.TCPAddr{} }

// visitors come to a door.
type visitors struct {
	t    *testing.T
	door *door
	q    queue
	port int
}

func newVisitors(t *testing.T, most int) *visitors {
	q := make(queue, 1)
	return &visitors{t: t, door: newDoor(q, most, time.Hour), q: q}
}

// come opens a connection from a host, which is known at once unless it is a
// stranger's; nil if it is not let in.
func (v *visitors) come(host string, whose int) (*conn, *from, net.Conn) {
	v.t.Helper()
	v.port++
	near, far := net.Pipe()
	f := &from{Conn: near, address: &net.TCPAddr{IP: net.ParseIP(host), Port: v.port}}
	v.q <- f
	c, err := v.door.Accept()
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { c.Close(); far.Close() })
	if err := c.(*conn).knows(whose); err != nil {
		c.Close()
		return nil, f, far
	}
	return c.(*conn), f, far
}

// Strangers make room for each other, those of the host first that has most of
// them, and for nobody who is known; a part of the places is for nodes.
func TestDoorShares(t *testing.T) {
	const most = 256 // 8 strangers, 64 places for nodes
	v := newVisitors(t, most)
	var nodes, users []*from
	for range 10 {
		_, f, _ := v.come("10.0.0.1", node)
		nodes = append(nodes, f)
	}
	refused := 0
	for range most {
		c, f, _ := v.come("10.0.0.2", user)
		if c == nil {
			refused++
			continue
		}
		users = append(users, f)
	}
	if len(users) != most-most/4-8 {
		t.Errorf("%d users have a place, %d not", len(users), refused)
	}
	_, lone, _ := v.come("10.0.0.3", stranger)
	var crowd []*from
	for range 50 {
		_, f, _ := v.come("10.0.0.4", stranger)
		crowd = append(crowd, f)
	}
	if lone.closed.Load() {
		t.Error("a lone stranger made room for a crowd from another host")
	}
	for i, f := range crowd {
		if gone := f.closed.Load(); gone != (i < 50-7) { // the oldest of them went
			t.Errorf("stranger %d of the crowd is gone: %v", i, gone)
		}
	}
	for i := range most/4 - 10 {
		_, f, _ := v.come(fmt.Sprintf("10.0.1.%d", i), node)
		nodes = append(nodes, f)
	}
	for _, f := range append(nodes, users...) {
		if f.closed.Load() {
			t.Fatal("somebody who is known made room for a stranger")
		}
	}
	if c, _, _ := v.come("10.0.0.1", node); c != nil {
		t.Error("there is no end of places")
	}
}

// What is read of a stranger is bounded until it is known who that is, and so is
// what is asked at once.
func TestDoorStrangers(t *testing.T) {
	v := newVisitors(t, 100)
	c, _, far := v.come("10.0.0.1", stranger)
	go func() {
		b := make([]byte, 1<<20)
		far.Write(b)
		far.Close()
	}()
	var read atomic.Int64
	ended := make(chan error, 1)
	go func() {
		b := make([]byte, 1000)
		for {
			n, err := c.Read(b)
			read.Add(int64(n))
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	eventually(t, "what is read of a stranger", func() bool { return read.Load() >= strangerBytes })
	time.Sleep(50 * time.Millisecond)
	if n := read.Load(); n > strangerBytes+1000 {
		t.Errorf("%d bytes were read of a stranger", n)
	}
	var ends []func()
	for range strangerCalls {
		end, ok := c.begin()
		if !ok {
			t.Fatal("a stranger may ask nothing")
		}
		ends = append(ends, end)
	}
	if _, ok := c.begin(); ok {
		t.Error("a stranger may ask without end")
	}
	ends[0]()
	ends[0]()
	if _, ok := c.begin(); !ok {
		t.Error("a call that is over counts")
	}
	if _, ok := c.begin(); ok {
		t.Error("a call that is over counts twice")
	}
	if err := c.knows(user); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != io.EOF || read.Load() != 1<<20 {
		t.Errorf("%d bytes were read of a user, %v", read.Load(), err)
	}
	for range 100 {
		if _, ok := c.begin(); !ok {
			t.Fatal("a user is taken for a stranger")
		}
	}
	for range 2 * strangerRefusals {
		c.refuse()
	}

	s, f, _ := v.come("10.0.0.2", stranger)
	for range strangerRefusals + 1 {
		s.refuse()
	}
	eventually(t, "the end of a stranger who was refused often", f.closed.Load)
	if c.isKnown(); errors.Is(c.knows(node), errFull) {
		t.Error("a user cannot become a node")
	}

	v.door.patience = 10 * time.Millisecond
	_, f, _ = v.come("10.0.0.3", stranger)
	eventually(t, "the end of a stranger who says nothing", f.closed.Load)
}
