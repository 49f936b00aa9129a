package gradients

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/version"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

func opening(change func(*pb.GradientsOpen)) *pb.GradientsRequest {
	o := &pb.GradientsOpen{Rounding: version.Rounding(), Rows: 2, Inputs: 1, Layers: 1, Features: 2, Hidden: 1, Covariance: "rbf", Frequencies: "prior-fixed", Likelihood: "gaussian"}
	if change != nil {
		change(o)
	}
	return &pb.GradientsRequest{Request: &pb.GradientsRequest_Open{Open: o}}
}

func rows(values ...float64) *pb.GradientsRequest {
	return &pb.GradientsRequest{Request: &pb.GradientsRequest_Rows{Rows: &pb.GradientsRows{Values: values}}}
}

func numbers(values ...float64) *pb.GradientsRequest {
	return &pb.GradientsRequest{Request: &pb.GradientsRequest_Numbers{Numbers: &pb.GradientsNumbers{Values: values}}}
}

func part(change func(*pb.GradientsPart)) *pb.GradientsRequest {
	p := &pb.GradientsPart{Id: 1, Rows: []int64{0, 1}, Factor: 1, Slopes: true}
	if change != nil {
		change(p)
	}
	return &pb.GradientsRequest{Request: &pb.GradientsRequest_Part{Part: p}}
}

// What no driver says is refused with a sentence, and takes no memory to speak of.
func TestServerRefuses(t *testing.T) {
	w := serve(t, ServerConfig{MaxBytes: 1 << 20}, "127.0.0.1:0", nil)
	conn, err := grpc.NewClient(w.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	at := &pb.GradientsRequest{Request: &pb.GradientsRequest_At{At: &pb.GradientsAt{Step: 1}}}
	all := make([]float64, 1+1+2*4+1) // σ, τ, means and variances of four weights, the noise
	open := []*pb.GradientsRequest{opening(nil), rows(1, 2, 3, 4)}
	ready := append(append([]*pb.GradientsRequest{}, open...), at, numbers(all...))
	for name, x := range map[string]struct {
		say  []*pb.GradientsRequest
		code codes.Code
		want string
	}{
		"nothing":         {nil, codes.InvalidArgument, "has ended before all rows"},
		"no rows":         {open[:1], codes.InvalidArgument, "has ended before all rows"},
		"no opening":      {[]*pb.GradientsRequest{at}, codes.InvalidArgument, "begins with one GradientsOpen"},
		"rounding":        {[]*pb.GradientsRequest{opening(func(o *pb.GradientsOpen) { o.Rounding = "mips" })}, codes.FailedPrecondition, "whose bits differ"},
		"many rows":       {[]*pb.GradientsRequest{opening(func(o *pb.GradientsOpen) { o.Rows = math.MaxInt64 })}, codes.ResourceExhausted, "more than the 1048576 bytes"},
		"negative rows":   {[]*pb.GradientsRequest{opening(func(o *pb.GradientsOpen) { o.Rows = -1 })}, codes.InvalidArgument, "of the shape"},
		"many features":   {[]*pb.GradientsRequest{opening(func(o *pb.GradientsOpen) { o.Features, o.Hidden = math.MaxInt32, math.MaxInt32 })}, codes.InvalidArgument, "of the shape"},
		"many layers":     {[]*pb.GradientsRequest{opening(func(o *pb.GradientsOpen) { o.Layers, o.Features, o.Hidden = 100, 1<<12, 1<<11 })}, codes.InvalidArgument, "of the shape"},
		"covariance":      {[]*pb.GradientsRequest{opening(func(o *pb.GradientsOpen) { o.Covariance = "matern" })}, codes.InvalidArgument, "of the shape"},
		"likelihood":      {[]*pb.GradientsRequest{opening(func(o *pb.GradientsOpen) { o.Likelihood = "cauchy" }), rows(1, 2, 3, 4)}, codes.InvalidArgument, `no networks of "cauchy"`},
		"class":           {[]*pb.GradientsRequest{opening(func(o *pb.GradientsOpen) { o.Likelihood, o.Classes = "categorical", 3 }), rows(1, 2, 3, 4)}, codes.InvalidArgument, "the 3 classes"},
		"broken rows":     {[]*pb.GradientsRequest{opening(nil), rows(1, 2, 3)}, codes.InvalidArgument, "numbers of rows"},
		"too many values": {[]*pb.GradientsRequest{opening(nil), rows(1, 2, 3, 4, 5, 6)}, codes.InvalidArgument, "numbers of rows"},
		"NaN":             {[]*pb.GradientsRequest{opening(nil), rows(1, math.NaN(), 3, 4)}, codes.InvalidArgument, "not finite"},
		"no parameters":   {append(append([]*pb.GradientsRequest{}, open...), part(nil)), codes.InvalidArgument, "before its parameters"},
		"few parameters":  {append(append([]*pb.GradientsRequest{}, open...), at, numbers(1), part(nil)), codes.InvalidArgument, "before its parameters"},
		"many parameters": {append(append([]*pb.GradientsRequest{}, ready...), numbers(1)), codes.InvalidArgument, "numbers of parameters"},
		"row":             {append(append([]*pb.GradientsRequest{}, ready...), part(func(p *pb.GradientsPart) { p.Rows[1] = 2 })), codes.InvalidArgument, "row 2 of 2"},
		"rows":            {append(append([]*pb.GradientsRequest{}, ready...), part(func(p *pb.GradientsPart) { p.Rows = make([]int64, 65) })), codes.InvalidArgument, "of 65 rows"},
		"factor":          {append(append([]*pb.GradientsRequest{}, ready...), part(func(p *pb.GradientsPart) { p.Factor = math.Inf(1) })), codes.InvalidArgument, "factor"},
		"empty":           {append(append([]*pb.GradientsRequest{}, ready...), &pb.GradientsRequest{}), codes.InvalidArgument, "unknown kind"},
	} {
		stream, err := pb.NewGradientsClient(conn).Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range x.say {
			if stream.Send(m) != nil {
				break
			}
		}
		stream.CloseSend()
		for err == nil {
			_, err = stream.Recv()
		}
		if s := status.Convert(err); s.Code() != x.code || !strings.Contains(s.Message(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// There are so many sessions at a time.
func TestServerIsFull(t *testing.T) {
	w := serve(t, ServerConfig{MaxSessions: 1}, "127.0.0.1:0", nil)
	conn, err := grpc.NewClient(w.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	first, err := pb.NewGradientsClient(conn).Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first.Send(opening(nil))
	first.Send(rows(1, 2, 3, 4))
	if m, err := first.Recv(); err != nil || m.GetOpened().GetSize() != 11 {
		t.Fatal(m, err)
	}
	second, err := pb.NewGradientsClient(conn).Session(t.Context())
	if err == nil {
		_, err = second.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second session: %v", err)
	}
	first.CloseSend()
}
