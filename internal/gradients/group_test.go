package gradients

import (
	"context"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ulisse-gp/ulisse/internal/deep"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network returns one of two layers over 200 rows under a likelihood, with offsets where it is Poisson's.
func network(t *testing.T, l likelihood.Likelihood) *posterior.Deep {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	x, y := make([]float64, 400), make([]float64, 200)
	for i := range y {
		x[2*i], x[2*i+1] = r.NormFloat64(), r.NormFloat64()
		switch y[i] = math.Sin(2*x[2*i]) + 0.2*r.NormFloat64(); l.(type) {
		case likelihood.Categorical:
			y[i] = math.Floor(math.Abs(4*y[i])) - 3*math.Floor(math.Floor(math.Abs(4*y[i]))/3)
		case likelihood.Poisson:
			y[i] = math.Floor(math.Exp(1 + y[i]))
		}
	}
	prior, err := param.ParsePrior("gamma(1,1)", param.Variance)
	if err != nil {
		t.Fatal(err)
	}
	m := posterior.NewModel(kernel.Single(kernel.RBF, 2, true), l, func(param.Param) param.Prior { return prior })
	p := posterior.NewProblem(m, kernel.NewInputs(200, 2, x), y)
	if (l == likelihood.Poisson{}) {
		p.Offset = slices.Repeat([]float64{0.3, -0.1}, 100)
	}
	d, err := posterior.NewDeep(p, deep.Config{Layers: 2, Features: 12, Hidden: 2, Covariance: deep.RBF, Frequencies: deep.Resampled, Seed: 3}, parallel.NewBudget(1))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// learn learns for some steps, and returns all that comes of it.
func learn(t *testing.T, d *posterior.Deep, steps int, tell func(step int)) []float64 {
	t.Helper()
	x := d.StartAt(make([]float64, len(d.Psi(d.Start()))))
	values, err := d.Learn(t.Context(), x, deep.Options{Steps: steps, Minibatch: 180, Step: 0.02, Tell: func(step int, _ []float64, _ float64, _ []float64) { tell(step) }})
	if err != nil {
		t.Fatal(err)
	}
	bound, se, err := d.Evidence(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(x, values, []float64{bound, se})
}

// worker is a server at an address of its own.
type worker struct {
	address string
	server  *grpc.Server
}

// serve starts a worker, whose stream may be meddled with.
func serve(t *testing.T, c ServerConfig, address string, meddle grpc.StreamServerInterceptor) worker {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if c.Budget == nil {
		c.Budget = parallel.NewBudget(2)
	}
	var o []grpc.ServerOption
	if meddle != nil {
		o = append(o, grpc.StreamInterceptor(meddle))
	}
	s := grpc.NewServer(o...)
	pb.RegisterGradientsServer(s, NewServer(c))
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return worker{l.Addr().String(), s}
}

// group returns one over workers, of which so many are to be ready.
func group(t *testing.T, d *posterior.Deep, ready int, log io.Writer, ws ...worker) *Group {
	t.Helper()
	var addresses []string
	for _, w := range ws {
		addresses = append(addresses, w.address)
	}
	g, err := New(d, Config{Workers: addresses, Options: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	for len(g.ready()) < ready {
		time.Sleep(time.Millisecond)
	}
	d.Share(g)
	return g
}

// What is learnt is the same to the last bit with any number of workers, which have a share, under all kinds of likelihoods.
func TestSameBitsWithAnyNumberOfWorkers(t *testing.T) {
	for _, x := range []struct {
		likelihood.Likelihood
		workers []int
	}{{likelihood.Gaussian{}, []int{1, 3}}, {likelihood.Categorical{Classes: make([]string, 3)}, []int{2}}, {likelihood.Poisson{}, []int{2}}} {
		want := learn(t, network(t, x.Likelihood), 8, func(int) {})
		for _, workers := range x.workers {
			d := network(t, x.Likelihood)
			var ws []worker
			for range workers {
				ws = append(ws, serve(t, ServerConfig{}, "127.0.0.1:0", nil))
			}
			g := group(t, d, workers, io.Discard, ws...)
			if got := learn(t, d, 8, func(int) {}); !slices.EqualFunc(got, want, same) {
				t.Errorf("%s: other bits with %d workers", x.Name(), workers)
			}
			if slices.Max(g.Shares()) == 0 {
				t.Errorf("%s: %d workers have shares %d", x.Name(), workers, g.Shares())
			}
		}
	}
}

// Workers that are gone in the middle, one of which comes back, one that stops answering, and one that nobody listens for, change no bit.
func TestWorkersThatFail(t *testing.T) {
	want := learn(t, network(t, likelihood.Gaussian{}), 120, func(int) {})
	d := network(t, likelihood.Gaussian{})
	var silent atomic.Bool
	var log lines
	a, b := serve(t, ServerConfig{}, "127.0.0.1:0", nil), serve(t, ServerConfig{}, "127.0.0.1:0", func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		return h(srv, mute{s, &silent})
	})
	g := group(t, d, 2, &log, a, b, worker{address: "127.0.0.1:1"})
	var again *worker
	got := learn(t, d, 120, func(step int) {
		switch step {
		case 20:
			a.server.Stop()
		case 40:
			w := serve(t, ServerConfig{}, a.address, nil)
			again = &w
		case 60:
			silent.Store(true)
		case 100: // the pause is over, or the test waits for it
			for before := g.Shares()[0]; len(g.ready()) == 0 && g.Shares()[0] == before; {
				time.Sleep(time.Millisecond)
			}
		}
	})
	if !slices.EqualFunc(got, want, same) {
		t.Error("other bits")
	}
	for _, text := range []string{"a worker is left alone for a while", "a worker is late", "connection refused"} {
		if !strings.Contains(log.String(), text) {
			t.Errorf("the log does not say %q:\n%s", text, &log)
		}
	}
	if again == nil {
		t.Error("it did not come back")
	}
}

// mute is a stream whose answers are lost.
type mute struct {
	grpc.ServerStream
	silent *atomic.Bool
}

func (m mute) SendMsg(msg any) error {
	if m.silent.Load() {
		return nil
	}
	return m.ServerStream.SendMsg(msg)
}

// wrong is a stream whose answers are changed in their last bit, or to what is no number.
type wrong struct {
	grpc.ServerStream
	change func(float64) float64
}

func (w wrong) SendMsg(msg any) error {
	if m, ok := msg.(*pb.GradientsResponse); ok && m.GetAnswer() != nil {
		m.GetAnswer().Values[0] = w.change(m.GetAnswer().Values[0])
	}
	return w.ServerStream.SendMsg(msg)
}

// A worker whose numbers are wrong ends the fit, with its address, once a sample has met one: of 64 chunks one is looked at, and of 3,000 of them none is by chance 3 times in 10²¹. One whose numbers are not finite is left
// alone.
func TestWrongNumbers(t *testing.T) {
	meddled := func(change func(float64) float64) worker {
		return serve(t, ServerConfig{}, "127.0.0.1:0", func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			return h(srv, wrong{s, change})
		})
	}
	d, w := network(t, likelihood.Gaussian{}), meddled(func(v float64) float64 { return math.Nextafter(v, 0) })
	g := group(t, d, 1, io.Discard, w)
	x := d.StartAt(make([]float64, 4))
	var err error
	for err == nil && g.Shares()[0] < 3000 {
		_, _, err = d.Evidence(t.Context(), x)
	}
	if err == nil || !strings.Contains(err.Error(), "the worker at "+w.address+" has computed a gradient whose bits are not the driver's") {
		t.Errorf("wrong numbers: %v", err)
	}
	want := learn(t, network(t, likelihood.Gaussian{}), 10, func(int) {})
	d = network(t, likelihood.Gaussian{})
	var log lines
	group(t, d, 1, &log, meddled(func(float64) float64 { return math.NaN() }))
	if got := learn(t, d, 10, func(int) {}); !slices.EqualFunc(got, want, same) {
		t.Error("other bits beside a worker whose numbers are none")
	}
}

// Sums end when their context does, also while a worker is silent.
func TestSumsEndWithTheirContext(t *testing.T) {
	d := network(t, likelihood.Gaussian{})
	var silent atomic.Bool
	silent.Store(true)
	w := serve(t, ServerConfig{}, "127.0.0.1:0", func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		return h(srv, openly{mute{s, &silent}})
	})
	group(t, d, 1, io.Discard, w)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	x := d.StartAt(make([]float64, 4))
	for ctx.Err() == nil {
		if _, _, err := d.Evidence(ctx, x); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Learn(ctx, x, deep.Options{Steps: 3, Minibatch: 180, Step: 0.1}); err != context.DeadlineExceeded {
		t.Errorf("the error is %v", err)
	}
}

// openly is a mute stream that lets a session open.
type openly struct{ mute }

func (o openly) SendMsg(msg any) error {
	if m, ok := msg.(*pb.GradientsResponse); ok && m.GetOpened() != nil {
		return o.ServerStream.SendMsg(msg)
	}
	return o.mute.SendMsg(msg)
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
