package faults

import (
	"context"
	"crypto/tls"
	bigendian "encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// floodMost is what floods of strangers may add to what a coordinator has in
// memory.
const floodMost = 64 << 20

// A flood is something that a stranger, without certificate or token, does to a
// port as often as it gets done, until ctx ends.
type flood struct {
	name string
	port string // grpc or http
	do   func(ctx context.Context, address string, n int)
}

// halfBody yields a body but for its last byte, and then nothing.
type halfBody struct {
	head []byte
	left int
	ctx  context.Context
}

func (b *halfBody) Read(p []byte) (int, error) {
	switch n := 0; {
	case len(b.head) > 0:
		n = copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	case b.left == 0:
		<-b.ctx.Done()
		return 0, io.EOF
	default:
		n = min(len(p), b.left)
		for i := range p[:n] {
			p[i] = ' '
		}
		b.left -= n
		return n, nil
	}
}

// half sends n messages over one connection, each but for its last byte.
func half(path string, size int, head []byte) func(context.Context, string, int) {
	return func(ctx context.Context, address string, n int) {
		tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		defer tr.CloseIdleConnections()
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				for ctx.Err() == nil {
					r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+path, &halfBody{head: head, left: size - 1, ctx: ctx})
					r.Header.Set("Content-Type", "application/grpc")
					r.Header.Set("Te", "trailers")
					r.Header.Set("Grpc-Timeout", "99999999H")
					if resp, err := tr.RoundTrip(r); err == nil {
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					pause(ctx, 20*time.Millisecond)
				}
			})
		}
		wg.Wait()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// frame is the head of a message of gRPC.
func frame(size int) []byte { return bigendian.BigEndian.AppendUint32([]byte{0}, uint32(size)) }

// dialTLS opens a connection of HTTP/2.
func dialTLS(ctx context.Context, address string) (net.Conn, error) {
	d := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second}, Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
	return d.DialContext(ctx, "tcp", address)
}

// hold keeps n connections open, each with what say says, and opens them again
// when they are closed.
func hold(say func(ctx context.Context, c net.Conn) error) func(context.Context, string, int) {
	return func(ctx context.Context, address string, n int) {
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				for ctx.Err() == nil {
					c, err := dialTLS(ctx, address)
					if err == nil {
						stop := context.AfterFunc(ctx, func() { c.Close() })
						if say(ctx, c) == nil {
							io.Copy(io.Discard, c)
						}
						stop()
						c.Close()
					}
					pause(ctx, 100*time.Millisecond)
				}
			})
		}
		wg.Wait()
	}
}

// greet begins HTTP/2.
func greet(c net.Conn) (*http2.Framer, error) {
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return nil, err
	}
	f := http2.NewFramer(c, c)
	return f, f.WriteSettings()
}

// call opens a stream with a call of gRPC.
func call(f *http2.Framer, id uint32, path string, more ...hpack.HeaderField) error {
	var b strings.Builder
	enc := hpack.NewEncoder(&b)
	for _, h := range append([]hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: path}, {Name: ":authority", Value: "x"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}}, more...) {
		if err := enc.WriteField(h); err != nil {
			return err
		}
	}
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte(b.String()), EndHeaders: true})
}

const healthWatch = "/grpc.health.v1.Health/Watch"

var floods = []flood{
	{"messages of 16 MiB but for a byte", "grpc", half("/ulisse.v1.Jobs/Submit", 16<<20-1, frame(16<<20-1))},
	{"such messages to the health", "grpc", half("/grpc.health.v1.Health/Check", 16<<20-1, frame(16<<20-1))},
	{"bodies of 4 MiB but for a byte", "http", half("/v1/jobs", 4<<20-10, []byte(`{"spec":"`))},
	{"uploads", "http", half("/login", 1<<30, nil)},
	{"connections that asked for the health once", "grpc", hold(func(_ context.Context, c net.Conn) error {
		f, err := greet(c)
		if err == nil {
			err = call(f, 1, healthWatch)
		}
		return err
	})},
	{"connections that say nothing", "http", hold(func(context.Context, net.Conn) error { return nil })},
	{"streams without a message", "grpc", hold(func(_ context.Context, c net.Conn) error {
		f, err := greet(c)
		for id := uint32(1); err == nil && id < 4000; id += 2 {
			err = call(f, id, "/grpc.health.v1.Health/Check", hpack.HeaderField{Name: "grpc-timeout", Value: "99999999H"})
		}
		return err
	})},
	{"calls that are refused", "grpc", hold(func(ctx context.Context, c net.Conn) error {
		f, err := greet(c)
		go io.Copy(io.Discard, c)
		for id := uint32(1); err == nil && ctx.Err() == nil; id += 2 {
			err = call(f, id, "/ulisse.v1.Jobs/List", hpack.HeaderField{Name: "grpc-timeout", Value: "99999999H"}, hpack.HeaderField{Name: "a", Value: strings.Repeat("x", 1000)})
		}
		return err
	})},
	{"metadata without end", "grpc", hold(func(ctx context.Context, c net.Conn) error {
		f, err := greet(c)
		if err == nil {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
		}
		field := append([]byte{0x40, 1, 'a', 0x7f, 0x81, 0x1e}, strings.Repeat("x", 4000)...) // kept in the table
		for err == nil && ctx.Err() == nil {
			if err = f.WriteContinuation(1, false, field); err == nil {
				err = f.WriteContinuation(1, false, []byte(strings.Repeat("\xbe", 8000))) // the latest of the table, again and again
			}
		}
		return err
	})},
}

// resident returns the bytes that a process has in memory.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int64
	fmt.Sscan(string(text), &size, &pages)
	return pages * int64(os.Getpagesize())
}

// Strangers fill neither the memory nor the ports of a coordinator, whatever they
// do, alone and all at once: a job goes on, and clients are answered. ULISSE_FLOOD
// says how large the floods are (1 unless told).
func TestFloods(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what a process has in memory is asked of Linux")
	}
	if testing.Short() {
		t.Skip("half a minute of floods")
	}
	scale := number(t, "ULISSE_FLOOD", 1)
	c := start(t, 1, 1)
	id := c.submit(fmt.Sprintf(specText, 1_000_000, 1_000_000, 1))
	c.until("draws", 3*time.Minute, func() bool { j, ok := c.job(id); return ok && j.draws() > 0 })
	p := c.processes("coordinator")[0]
	before := resident(t, p.PID)
	run := func(name string, some []flood, d time.Duration) {
		most := int64(0)
		was, _ := c.job(id)
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		var wg sync.WaitGroup
		for _, f := range some {
			address := p.Addresses.GRPC
			if f.port == "http" {
				address = p.Addresses.HTTP
			}
			wg.Go(func() { f.do(ctx, address, 100*scale) })
		}
		var answered, failed atomic.Int64
		wg.Go(func() { // a client's new connections
			for ctx.Err() == nil {
				if _, err := c.run("whoami", "--timeout", "5s"); err == nil {
					answered.Add(1)
				} else {
					failed.Add(1)
				}
			}
		})
		for ctx.Err() == nil {
			most = max(most, resident(t, p.PID))
			pause(ctx, 50*time.Millisecond)
		}
		wg.Wait()
		is, ok := c.job(id)
		t.Logf("%-45s %3d MB more than %d at most; a client was answered %d times and not %d times; %d draws were made", name+":",
			(most-before)>>20, before>>20, answered.Load(), failed.Load(), is.draws()-was.draws())
		if most-before > floodMost {
			t.Errorf("%s: %d MB more in memory", name, (most-before)>>20)
		}
		if answered.Load() == 0 || failed.Load() > answered.Load() {
			t.Errorf("%s: a client is not answered", name)
		}
		if !ok || is.draws() == was.draws() {
			t.Errorf("%s: the job stands still", name)
		}
	}
	for _, f := range floods {
		run(f.name, []flood{f}, time.Duration(scale)*1500*time.Millisecond)
	}
	run("all at once", floods, time.Duration(scale)*3*time.Second)
	if _, err := c.run("cancel", id); err != nil {
		t.Error(err)
	}
}
