// Command shard measures what it costs to split products K·V over workers: over
// loopback gRPC at several sizes of group, against one operator in process.
//
//	go run ./bench/shard -n 10000,100000 -s 1,5,17 -groups 2,4
//
// Every member has -cores cores, of a machine that may have fewer in all, or
// others that use it. So the processor time of the whole process is reported
// beside the time taken. For each n and s the variants take turns:
//
//	alone    cmvp.Operator.Mul on -cores cores
//	cut      MulRows over some units as a group has, in process: the cost of
//	         evaluating elements twice that are equal by symmetry
//	group k  a driver and k−1 members behind gRPC, with TLS if -tls is given
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/ulisse-gp/ulisse/internal/certs"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/shard"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

func main() {
	log.SetFlags(0)
	ns := flag.String("n", "1000,2000,4000,8000,16000", "rows")
	ss := flag.String("s", "1,5,17", "columns")
	gs := flag.String("groups", "2,4", "sizes of group")
	d := flag.Int("d", 8, "inputs")
	cores := flag.Int("cores", 1, "cores of each member")
	reps := flag.Int("reps", 5, "repetitions")
	secure := flag.Bool("tls", false, "mutual TLS between the members")
	forms := flag.Bool("forms", false, "gradient forms in place of products")
	flag.Parse()
	isa, err := cmvp.ISA()
	if err != nil {
		log.Fatal(err)
	}
	src, err := certificate(*secure)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, rbf, d=%d, %d cores a member, tls %v; of %d runs the least seconds taken and the least processor seconds relative to alone\n", isa, *d, *cores, *secure, *reps)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "n\ts\talone\tcpu\tcut\tcpu\t")
	for _, g := range list(*gs) {
		fmt.Fprintf(w, "group %d\tcpu\tMB out\tin\t", g)
	}
	fmt.Fprintln(w)
	for _, n := range list(*ns) {
		for _, s := range list(*ss) {
			b := newBench(n, *d, s, *cores, *forms, src.Credentials(identity.Worker))
			b.row(w, list(*gs), *reps)
			w.Flush()
			b.close()
		}
	}
}

// certificate makes one for all members, or none for plaintext.
func certificate(secure bool) (*tlsconf.Source, error) {
	if !secure {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "shard-certs")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ca, err := certs.NewAuthority(certs.AuthorityRequest{Name: "bench", From: time.Now(), Days: 2})
	if err != nil {
		return nil, err
	}
	p, err := ca.Issue(certs.Request{Peer: identity.Peer{Role: identity.Worker, Name: "bench"}, From: time.Now(), Days: 1})
	if err = errors.Join(err, ca.Save(dir), p.Save(dir, "worker", false)); err != nil {
		return nil, err
	}
	return tlsconf.Load(tlsconf.Files{Cert: dir + "/worker.crt", Key: dir + "/worker.key", CA: dir + "/ca.crt"}, tlsconf.Options{})
}

func list(s string) []int {
	var all []int
	for _, f := range strings.Split(s, ",") {
		x, err := strconv.Atoi(f)
		if err != nil || x < 1 {
			log.Fatalf("%q is not a list of positive numbers", s)
		}
		all = append(all, x)
	}
	return all
}

// bench is one size of problem.
type bench struct {
	n, s, cores int
	forms       bool
	in          *kernel.Inputs
	v, dst      [][]float64
	group       []int
	meter       *shard.Meter
	pool        *shard.Pool
	isa         string
	creds       credentials.TransportCredentials
	closers     []func()
}

func newBench(n, d, s, cores int, forms bool, creds credentials.TransportCredentials) *bench {
	rnd := rand.New(rand.NewPCG(1, 2))
	normal := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = rnd.NormFloat64()
		}
		return x
	}
	b := &bench{n: n, s: s, cores: cores, forms: forms, creds: creds, in: kernel.NewInputs(n, d, normal(n*d)), meter: &shard.Meter{}, group: make([]int, s)}
	for range s {
		b.v, b.dst = append(b.v, normal(n)), append(b.dst, make([]float64, n))
	}
	b.isa, _ = cmvp.ISA()
	b.pool = shard.NewPool(b.meter, grpc.WithTransportCredentials(creds))
	return b
}

func (b *bench) close() {
	for _, f := range slices.Backward(b.closers) {
		f()
	}
	b.pool.Close()
}

// Inputs makes a bench the source of its servers.
func (b *bench) Inputs(context.Context, string) (*kernel.Inputs, error) { return b.in, nil }

var theta, noise = []float64{1, 0.1}, []float64{0.1}

func (b *bench) covariance() *kernel.Covariance { return kernel.Single(kernel.RBF, b.in.Dim(), false) }

func (b *bench) operator(cores int) *cmvp.Operator {
	op := cmvp.New(b.in, b.covariance(), held(cores))
	op.Set(theta, noise)
	return op
}

// held returns a budget of which the caller holds a core.
func held(cores int) *parallel.Budget {
	p := parallel.NewBudget(cores)
	p.Acquire(context.Background())
	return p
}

type operator interface {
	Mul(ctx context.Context, dst, v [][]float64) error
	Forms(ctx context.Context, u, v [][]float64, group []int, groups int) ([][]float64, error)
}

func (b *bench) product(op operator) func() {
	return func() {
		var err error
		if b.forms {
			_, err = op.Forms(context.Background(), b.v, b.v, b.group, 1)
		} else {
			err = op.Mul(context.Background(), b.dst, b.v)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
}

// distributed returns the product of a group of some size.
func (b *bench) distributed(size int) func() {
	var names []string
	for range size - 1 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		s := grpc.NewServer(append(shard.ServerOptions(), grpc.Creds(b.creds))...)
		pb.RegisterTilesServer(s, shard.NewServer(shard.ServerConfig{Source: b, Budget: parallel.NewBudget(b.cores)}))
		go s.Serve(l)
		b.closers = append(b.closers, s.Stop)
		names = append(names, l.Addr().String())
	}
	data := shard.Data{Address: "x", Covariance: b.covariance(), ISA: b.isa, Rows: b.n}
	g := shard.New(shard.Config{Local: b.operator(b.cores), MinRows: 1, Meter: b.meter, Log: slog.New(slog.DiscardHandler),
		Dial: func(name string) shard.Member { return b.pool.Member(name, data) }})
	g.Set(theta, noise)
	g.SetMembers(names...)
	b.closers = append(b.closers, func() { g.Close() })
	return b.product(g)
}

// cut returns the product by ranges of rows.
func (b *bench) cut() func() {
	op := b.operator(b.cores)
	if b.forms {
		return b.cutForms(op)
	}
	tiles := cmvp.NewGrid(b.n).Tiles
	units, dst := min(8, tiles), make([][]float64, b.s)
	return func() {
		for i := range units {
			lo, hi := i*tiles/units*cmvp.TileRows, min(b.n, (i+1)*tiles/units*cmvp.TileRows)
			for c := range dst {
				dst[c] = b.dst[c][lo:hi]
			}
			if err := op.MulRows(context.Background(), dst, b.v, lo, hi, cmvp.Double); err != nil {
				log.Fatal(err)
			}
		}
	}
}

// cutForms returns the forms by ranges of tasks.
func (b *bench) cutForms(op *cmvp.Operator) func() {
	tasks, per := cmvp.NewGrid(b.n).Tasks(), op.FormSums(1)
	units := min(8, tasks)
	sums := make([]float64, tasks*per)
	return func() {
		for i := range units {
			lo, hi := i*tasks/units, (i+1)*tasks/units
			if err := op.FormsTasks(context.Background(), sums[lo*per:hi*per], b.v, b.v, b.group, 1, lo, hi); err != nil {
				log.Fatal(err)
			}
		}
		op.ReduceForms(sums, 1)
	}
}

// row measures and prints one line.
func (b *bench) row(w *tabwriter.Writer, groups []int, reps int) {
	variants := []func(){b.product(b.operator(b.cores)), b.cut()}
	for _, g := range groups {
		variants = append(variants, b.distributed(g))
	}
	if b.n <= 20000 { // connect, and get used to it
		for _, f := range variants {
			f()
		}
	}
	least := make([][2]float64, len(variants))
	out, in := make([]float64, len(variants)), make([]float64, len(variants))
	for rep := range reps {
		for i, f := range variants {
			runtime.GC()
			before, began, used := b.meter.Load(), time.Now(), cpu()
			f()
			took := [2]float64{time.Since(began).Seconds(), cpu() - used}
			after := b.meter.Load()
			for k, x := range took {
				if rep == 0 || x < least[i][k] {
					least[i][k] = x
				}
			}
			out[i] += float64(after.BytesSent-before.BytesSent) / 1e6 / float64(reps)
			in[i] += float64(after.BytesReceived-before.BytesReceived) / 1e6 / float64(reps)
		}
	}
	fmt.Fprintf(w, "%d\t%d\t%.3g\t%.3g s\t", b.n, b.s, least[0][0], least[0][1])
	for i := 1; i < len(variants); i++ {
		fmt.Fprintf(w, "%.3g\t%.2f\t", least[i][0], least[i][1]/least[0][1])
		if i > 1 {
			fmt.Fprintf(w, "%.2f\t%.2f\t", out[i], in[i])
		}
	}
	fmt.Fprintln(w)
}

// cpu returns the processor seconds that the process has used.
func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		log.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
