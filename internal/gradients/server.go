package gradients

import (
	"context"
	"io"
	"math"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/deep"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/version"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// ServerConfig says what a server may use.
type ServerConfig struct {
	Budget *parallel.Budget
	// MaxSessions is how many fits are served at a time; 0 means 16.
	MaxSessions int
	// MaxBytes is the memory that a session may take; 0 means 4 GiB.
	MaxBytes int64
}

// Server computes chunks for fits that other processes drive.
type Server struct {
	pb.UnimplementedGradientsServer
	conf     ServerConfig
	sessions chan struct{} // one element for each
}

// NewServer returns a server, to be registered with RegisterGradientsServer.
func NewServer(c ServerConfig) *Server {
	if c.MaxSessions == 0 {
		c.MaxSessions = 16
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 4 << 30
	}
	return &Server{conf: c, sessions: make(chan struct{}, c.MaxSessions)}
}

// maxParts is how many parts of a session are computed at a time at most.
const maxParts = 64

// Session serves a fit.
func (s *Server) Session(stream pb.Gradients_SessionServer) error {
	select {
	case s.sessions <- struct{}{}:
		defer func() { <-s.sessions }()
	default:
		return status.Errorf(codes.ResourceExhausted, "the worker serves %d fits already", s.conf.MaxSessions)
	}
	ctx, cancel := context.WithCancel(stream.Context())
	v := &serving{Server: s, stream: stream, ctx: ctx, cancel: cancel, slots: make(chan struct{}, min(maxParts, s.conf.Budget.Cores())+1)}
	defer v.working.Wait()
	defer cancel()
	if err := v.open(); err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := v.take(m); err != nil {
			return err
		}
	}
}

// serving is the session of a fit.
type serving struct {
	*Server
	stream  pb.Gradients_SessionServer
	ctx     context.Context
	cancel  context.CancelFunc
	in      *kernel.Inputs
	net     *deep.Network
	slots   chan struct{} // an element for each part that is computed or waits
	working sync.WaitGroup

	// Of who receives.
	x      []float64
	step   int
	sample *deep.Sample // at x; nil until a part asks for it

	send sync.Mutex // of who answers
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// Bounds of what a driver may say, beside memory.
const (
	maxInputs  = 100_000
	maxClasses = 1000
	maxSize    = 16 << 20 // numbers of frequencies, and parameters
)

// open takes in the network and the rows.
func (v *serving) open() error {
	m, err := v.early()
	if err != nil {
		return err
	}
	o := m.GetOpen()
	if o == nil {
		return invalid("a session begins with one GradientsOpen")
	}
	if o.Rounding != version.Rounding() {
		return status.Errorf(codes.FailedPrecondition, "the driver rounds as %q and this worker as %q, whose bits differ: learn with workers of one kind", o.Rounding, version.Rounding())
	}
	c := deep.Config{Inputs: int(o.Inputs), Layers: int(o.Layers), Features: int(o.Features), Hidden: int(o.Hidden), Covariance: deep.Covariance(o.Covariance), Frequencies: deep.Frequencies(o.Frequencies), ARD: o.Ard, Seed: o.Seed}
	out := posterior.Outcomes{Likelihood: o.Likelihood, Classes: int(o.Classes)}
	if err := check(c, o); err != nil {
		return err
	}
	width := c.Inputs + 1
	if o.Offset {
		width++
	}
	if o.Rows > v.conf.MaxBytes/8/int64(width+2) {
		return status.Errorf(codes.ResourceExhausted, "%d rows of %d numbers: more than the %d bytes that a session has on this worker", o.Rows, width, v.conf.MaxBytes)
	}
	if err := v.rows(int(o.Rows), c.Inputs, o.Offset, &out); err != nil {
		return err
	}
	targets, err := out.Output()
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	v.net = deep.New(c, targets)
	if v.net.Size() > maxSize {
		return invalid("a network of %d numbers, and %d are allowed", v.net.Size(), maxSize)
	}
	return v.stream.Send(&pb.GradientsResponse{Response: &pb.GradientsResponse_Opened{Opened: &pb.GradientsOpened{Size: int64(v.net.Size()), Parts: int32(cap(v.slots) - 1)}}})
}

// early returns the next message of a session that is not open yet.
func (v *serving) early() (*pb.GradientsRequest, error) {
	m, err := v.stream.Recv()
	if err == io.EOF {
		return nil, invalid("the session has ended before all rows had come")
	}
	return m, err
}

// check returns an error if there can be no network of a shape.
func check(c deep.Config, o *pb.GradientsOpen) error {
	ok := o.Rows > 0 && 1 <= c.Inputs && c.Inputs <= maxInputs && 1 <= c.Layers && c.Layers <= 100 && 1 <= c.Features && 1 <= c.Hidden && 0 <= o.Classes && o.Classes <= maxClasses &&
		slices.Contains(deep.Covariances, c.Covariance) && slices.Contains(deep.Treatments, c.Frequencies)
	// All of these are below 2³¹, and the first product so small that the second is none too large.
	if !ok || c.Hidden > maxSize || c.Features > maxSize/(c.Inputs+c.Hidden+int(o.Classes)) || c.Layers*c.Features*(c.Inputs+c.Hidden+int(o.Classes)) > maxSize {
		return invalid("a network over %d rows of the shape %+v, and %d classes", o.Rows, c, o.Classes)
	}
	return nil
}

// rows takes in rows, as they come.
func (v *serving) rows(n, d int, offset bool, out *posterior.Outcomes) error {
	width := d + 1
	if offset {
		width++
	}
	var x []float64
	for len(out.Y) < n {
		m, err := v.early()
		if err != nil {
			return err
		}
		values := m.GetRows().GetValues()
		if len(values) == 0 || len(values) > blockLen+maxInputs || len(values)%width != 0 || len(values)/width > n-len(out.Y) {
			return invalid("%d numbers of rows, of which there are %d in each, and %d rows are lacking", len(values), width, n-len(out.Y))
		}
		if !finite(values) {
			return invalid("rows whose numbers are not finite")
		}
		for ; len(values) > 0; values = values[width:] {
			x, out.Y = append(x, values[:d]...), append(out.Y, values[d])
			if offset {
				out.Offset = append(out.Offset, values[d+1])
			}
		}
	}
	v.in = kernel.NewInputs(n, d, x)
	return nil
}

func finite(x []float64) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}

// take takes in a message.
func (v *serving) take(m *pb.GradientsRequest) error {
	switch r := m.Request.(type) {
	case *pb.GradientsRequest_At:
		v.x, v.step, v.sample = make([]float64, 0, v.net.Size()), int(r.At.Step), nil
		return nil
	case *pb.GradientsRequest_Numbers:
		if k := len(r.Numbers.Values); v.x == nil || k == 0 || k > v.net.Size()-len(v.x) {
			return invalid("%d numbers of parameters, of which %d are lacking", k, v.net.Size()-len(v.x))
		}
		if !finite(r.Numbers.Values) {
			return invalid("parameters that are not finite")
		}
		v.x = append(v.x, r.Numbers.Values...)
		return nil
	case *pb.GradientsRequest_Part:
		return v.part(r.Part)
	}
	return invalid("a message of an unknown kind")
}

// part has a part computed beside others, and answered.
func (v *serving) part(p *pb.GradientsPart) error {
	if v.x == nil || len(v.x) < v.net.Size() {
		return invalid("a part before its parameters")
	}
	rows := make([]int, len(p.Rows))
	for i, r := range p.Rows {
		if r < 0 || r >= int64(v.in.Len()) {
			return invalid("row %d of %d", r, v.in.Len())
		}
		rows[i] = int(r)
	}
	if len(rows) == 0 || len(rows) > deep.ChunkRows || p.Id == 0 || p.Chunk < 0 || !finite([]float64{p.Factor}) {
		return invalid("part %d of %d rows, chunk %d, factor %g", p.Id, len(rows), p.Chunk, p.Factor)
	}
	if v.sample == nil {
		v.sample = v.net.At(v.x, v.step)
	}
	select {
	case v.slots <- struct{}{}: // until one is free the driver waits, too
	case <-v.ctx.Done():
		return v.ctx.Err()
	}
	at := v.sample
	v.working.Go(func() {
		defer func() { <-v.slots }()
		if v.conf.Budget.Acquire(v.ctx) != nil {
			return
		}
		value, grad := at.Chunk(v.in, rows, int(p.Chunk), p.Factor, p.Slopes)
		v.conf.Budget.Release()
		if v.answer(p.Id, append([]float64{value}, grad...)) != nil {
			v.cancel()
		}
	})
	return nil
}

// answer sends the numbers of a part.
func (v *serving) answer(id uint64, out []float64) error {
	v.send.Lock()
	defer v.send.Unlock()
	for lo := 0; lo < len(out); lo += blockLen {
		a := &pb.GradientsAnswer{Id: id, Offset: int64(lo), Values: out[lo:min(len(out), lo+blockLen)]}
		if err := v.stream.Send(&pb.GradientsResponse{Response: &pb.GradientsResponse_Answer{Answer: a}}); err != nil {
			return err
		}
	}
	return nil
}
