// Command shard measures what it costs to split products K·V over workers: over gRPC on
// loopback addresses at several sizes of group, against one operator in process.
//
//	go run ./bench/shard -n 16000,100000 -s 1,5,17 -groups 2,4,8
//
// Each member is a process of its own with -cores cores, of a machine that may have fewer in
// all, or others that use it. So processor time is what counts: that of all members together,
// relative to that of the operator alone. Operator and groups take turns, and of -reps turns
// the least counts. With -json there is one object a line: n, s, members, ratio, and the bytes
// that the busiest member received and sent for a product.
//
// With -gradient the members take whole gradients, with a preconditioner of rank -rank times √n,
// and what package sizing plans for them stands beside what they took.
//
// With -exchange the members add up sums among themselves, but for those of the first product with each θ; bytes are those that the driver
// or another member, whichever is busiest, received and sent.
//
// With -build the group builds such a preconditioner, and what memory each process came to is told, beside what is planned for it, which it is told to keep to.
//
// With -apply they multiply by the factor of such a preconditioner, there and back, in place of products with K.
//
// With -inducing M they take gradients of the bound of a sparse approximation (SGPR) with M inducing inputs.
//
// The first product with each θ is computed twice for one column (package shard). It is told
// apart, as first_ratio: what a gradient takes is one of these and some tens of the others.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/ulisse-gp/ulisse/internal/certs"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cmvp/dense"
	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/shard"
	"github.com/ulisse-gp/ulisse/internal/sparse"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// options are those of a run.
type options struct {
	d, cores, reps int
	limit          int64 // of memory of members; 0 for none
	forms, single  bool
	apply, build   bool
	exchange       bool
	inducing       int
	rank           float64
	certs          string // folder of the certificate of all members; empty for plaintext
}

func main() {
	log.SetFlags(0)
	var o options
	ns := flag.String("n", "8000,16000", "rows")
	ss := flag.String("s", "1,5,17", "columns")
	gs := flag.String("groups", "2,4,8", "sizes of group")
	flag.IntVar(&o.d, "d", 8, "inputs")
	flag.IntVar(&o.cores, "cores", 1, "cores of each member")
	flag.IntVar(&o.reps, "reps", 5, "turns")
	flag.BoolVar(&o.forms, "forms", false, "gradient forms in place of products")
	flag.BoolVar(&o.single, "single", false, "products in single precision")
	gradient := flag.Bool("gradient", false, "whole gradients, beside what is planned for them")
	flag.Float64Var(&o.rank, "rank", 4, "rank of the preconditioner, in √n, with -gradient, -apply and -build")
	flag.IntVar(&o.inducing, "inducing", 0, "gradients of a sparse approximation with so many inducing inputs in place of products with K; 0 for none")
	flag.BoolVar(&o.apply, "apply", false, "products with the factor of a preconditioner in place of those with K")
	flag.BoolVar(&o.exchange, "exchange", false, "members exchange sums, as in a large group or on a slow network")
	flag.BoolVar(&o.build, "build", false, "build such a preconditioner, and tell what memory the processes came to: for one n and one size of group, which may be 1")
	secure := flag.Bool("tls", true, "mutual TLS between the members")
	asJSON := flag.Bool("json", false, "one JSON object a line")
	member := flag.Int("member", 0, "be a member for this many rows (for the command itself)")
	flag.StringVar(&o.certs, "certs", "", "folder of certificates (for the command itself)")
	flag.Parse()
	var err error
	if *member > 0 {
		err = o.serve(*member)
	} else {
		err = o.run(*secure, *asJSON, *gradient, list(*ns), list(*ss), list(*gs))
	}
	if err != nil {
		log.Fatal(err)
	}
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

// run measures and prints all rows.
func (o *options) run(secure, asJSON, gradient bool, ns, ss, groups []int) error {
	if secure {
		dir, err := os.MkdirTemp("", "shard-certs")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := writeCertificate(dir); err != nil {
			return err
		}
		o.certs = dir
	}
	if o.build {
		return o.buildOver(ns[0], groups[0])
	}
	if gradient {
		return o.gradients(asJSON, ns, ss, groups)
	}
	isa, err := cmvp.ISA()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	if !asJSON {
		fmt.Printf("%s, rbf, d=%d, %d cores a member, tls %v; of %d turns the least processor seconds\n", isa, o.d, o.cores, secure, o.reps)
		fmt.Fprintln(w, "n\ts\tmembers\talone s\tratio\tfirst\tMB in\tMB out\tMB\tMB others\twall s\thedges\t")
	}
	for _, n := range ns {
		for _, s := range ss {
			rows, err := o.measure(n, s, groups)
			if err != nil {
				return err
			}
			for _, r := range rows {
				if asJSON {
					err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(r))
					continue
				}
				fmt.Fprintf(w, "%d\t%d\t%d\t%.3g\t%.3f\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f\t%.3g\t%d\t\n", r.N, r.S, r.Members, r.Alone, r.Ratio, r.First, r.BytesIn/1e6, r.BytesOut/1e6, r.Memory/1e6, r.Others/1e6, r.Wall, r.Hedges)
			}
			if err = errors.Join(err, w.Flush()); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeCertificate makes one for all members.
func writeCertificate(dir string) error {
	ca, err := certs.NewAuthority(certs.AuthorityRequest{Name: "bench", From: time.Now(), Days: 2})
	if err != nil {
		return err
	}
	p, err := ca.Issue(certs.Request{Peer: identity.Peer{Role: identity.Worker, Name: "bench"}, From: time.Now(), Days: 1})
	if err != nil {
		return err
	}
	return errors.Join(ca.Save(dir), p.Save(dir, "worker", false))
}

// credentials returns those of all members.
func (o *options) credentials() (credentials.TransportCredentials, error) {
	var src *tlsconf.Source
	if o.certs != "" {
		var err error
		files := tlsconf.Files{Cert: o.certs + "/worker.crt", Key: o.certs + "/worker.key", CA: o.certs + "/ca.crt"}
		if src, err = tlsconf.Load(files, tlsconf.Options{}); err != nil {
			return nil, err
		}
	}
	return src.Credentials(identity.Worker), nil
}

// row is what came of a size of group. Times are in seconds.
type row struct {
	N         int     `json:"n"`
	S         int     `json:"s"`
	Members   int     `json:"members"` // the driver among them
	Ratio     float64 `json:"ratio"`
	First     float64 `json:"first_ratio"` // of the first product with a θ
	BytesIn   float64 `json:"bytes_in"`
	BytesOut  float64 `json:"bytes_out"`
	Alone     float64 `json:"alone_cpu_seconds"`
	Wall      float64 `json:"wall_seconds"`
	AloneWall float64 `json:"alone_wall_seconds"`
	Memory    float64 `json:"memory"` // of the driver and of the largest other member, at most
	Others    float64 `json:"others_memory"`
	Hedges    int64   `json:"hedges"` // units that were given out twice, in all turns
}

// problem is a size of product.
type problem struct {
	*options
	in     *kernel.Inputs
	v, dst [][]float64
	group  []int
	// With -apply: the factor as each operator multiplies by it, and what lies between.
	l       *dense.Matrix
	factors map[operator]dense.Products
	w       [][]float64
	// With -inducing: the approximation of each operator.
	approx map[operator]*sparse.Approximation
}

func normal(rnd *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = rnd.NormFloat64()
	}
	return x
}

// inputs are the same in all members.
func (o *options) inputs(n int) *kernel.Inputs {
	return kernel.NewInputs(n, o.d, normal(rand.New(rand.NewPCG(1, 2)), n*o.d))
}

func (o *options) covariance() *kernel.Covariance { return kernel.Single(kernel.RBF, o.d, false) }

var theta, noise = []float64{1, 0.1}, []float64{0.1}

type operator interface {
	Set(theta, noise []float64)
	Mul(ctx context.Context, dst, v [][]float64) error
	MulSingle(ctx context.Context, dst, v [][]float64) error
	Forms(ctx context.Context, u, v [][]float64, group []int, groups int) ([][]float64, error)
	Budget() *parallel.Budget
}

// factor makes the factor of a preconditioner: normal numbers.
func (p *problem) factor(n, s int, alone operator) {
	rank, rnd := int(p.rank*math.Sqrt(float64(n))), rand.New(rand.NewPCG(5, 6))
	p.l, p.w = dense.New(n, rank), make([][]float64, s)
	for j := range rank {
		p.l.SetCol(j, normal(rnd, n))
	}
	for c := range p.w {
		p.w[c] = make([]float64, rank)
	}
	p.factors = map[operator]dense.Products{alone: p.l}
}

// share has the members of a group hold the rows of the factor, and waits until they answer.
func (p *problem) share(op *shard.Group, meter *shard.Meter) error {
	p.factors[op] = op.Share(precond.Factor{By: p.l, Matrix: p.l, Rank: int(p.rank * math.Sqrt(float64(len(p.v[0]))))})
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		before := meter.Load().BytesReceived
		if err := p.product(op); err != nil {
			return err
		}
		if meter.Load().BytesReceived-before > int64(8*len(p.v)*len(p.v[0])/4) { // not the answers to rows alone
			return nil
		}
	}
	return errors.New("the members do not hold the rows")
}

func (p *problem) product(op operator) error {
	switch {
	case p.inducing > 0:
		return p.slope(op)
	case p.apply:
		for c := range p.dst {
			clear(p.dst[c])
		}
		f, b := p.factors[op], op.Budget()
		return errors.Join(f.MulTrans(context.Background(), p.w, p.v, b), f.MulAdd(context.Background(), p.dst, p.w, b))
	case p.forms:
		_, err := op.Forms(context.Background(), p.v, p.v, p.group, 1)
		return err
	case p.single:
		return op.MulSingle(context.Background(), p.dst, p.v)
	}
	return op.Mul(context.Background(), p.dst, p.v)
}

func (p *problem) operator() *cmvp.Operator {
	b := parallel.NewBudget(p.cores)
	b.Acquire(context.Background()) // the caller holds a core
	return cmvp.New(p.in, p.covariance(), b)
}

// measure measures groups of some sizes.
func (o *options) measure(n, s int, groups []int) (rows []row, err error) {
	p := &problem{options: o, in: o.inputs(n), group: make([]int, s)}
	rnd := rand.New(rand.NewPCG(3, 4))
	for range s {
		p.v, p.dst = append(p.v, normal(rnd, n)), append(p.dst, make([]float64, n))
	}
	w, err := o.workers(n, slices.Max(groups)-1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	alone := p.operator()
	alone.Set(theta, noise)
	if p.apply {
		p.factor(n, s, alone)
	}
	if p.inducing > 0 {
		p.approximate(alone)
	}
	ops := make([]*shard.Group, len(groups))
	for i, size := range groups {
		ops[i] = w.group(p.operator(), size)
		defer ops[i].Close()
		ops[i].Set(theta, noise)
		if p.inducing > 0 {
			p.approximate(ops[i])
		}
		rows = append(rows, row{N: n, S: s, Members: size})
		connect := p.product
		if p.apply {
			connect = func(operator) error { return p.share(ops[i], w.meter) }
		}
		if err := connect(ops[i]); err != nil {
			return nil, err
		}
	}
	for range o.reps {
		runtime.GC()
		used, began := cputime.Seconds(), time.Now()
		if err := p.product(alone); err != nil {
			return nil, err
		}
		best, wall, want := cputime.Seconds()-used, time.Since(began).Seconds(), clone(p.dst)
		for i, op := range ops {
			r := &rows[i]
			op.Set(theta, noise)
			first, err := p.turn(op, w.members[:r.Members-1], w.meter)
			if err != nil {
				return nil, err
			}
			next, err := p.turn(op, w.members[:r.Members-1], w.meter)
			if err != nil {
				return nil, err
			}
			if !p.forms && !equal(p.dst, want) {
				return nil, fmt.Errorf("a group of %d computes other bits", r.Members)
			}
			r.AloneWall = least(r.AloneWall, wall)
			r.Alone, r.First, r.Ratio = least(r.Alone, best), least(r.First, first.cpu), least(r.Ratio, next.cpu)
			r.Wall = least(r.Wall, next.wall)
			r.BytesIn, r.BytesOut = max(r.BytesIn, next.in), max(r.BytesOut, next.out)
			r.Hedges += next.hedges
			r.Memory, r.Others = memory(), max(r.Others, next.memory)
		}
	}
	for i := range rows {
		rows[i].Ratio /= rows[i].Alone
		rows[i].First /= rows[i].Alone
	}
	return rows, nil
}

func clone(x [][]float64) (all [][]float64) {
	for _, c := range x {
		all = append(all, slices.Clone(c))
	}
	return all
}

func equal(a, b [][]float64) bool { return slices.EqualFunc(a, b, slices.Equal[[]float64]) }

// least returns the smaller of two times, 0 being none.
func least(a, b float64) float64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// cost is what a product took: processor and wall seconds, and the bytes of the busiest
// member.
type cost struct {
	cpu, wall, in, out float64
	memory             float64 // of the largest member beside the driver
	hedges             int64
}

// turn measures one product of a group.
func (p *problem) turn(op *shard.Group, members []*member, meter *shard.Meter) (c cost, err error) {
	runtime.GC()
	before := make([]usage, len(members))
	for i, m := range members {
		if before[i], err = m.usage(); err != nil {
			return c, err
		}
	}
	load, began, used := meter.Load(), time.Now(), cputime.Seconds()
	if err := p.product(op); err != nil {
		return c, err
	}
	c.wall, c.cpu = time.Since(began).Seconds(), cputime.Seconds()-used
	now := meter.Load()
	c.in, c.out = float64(now.BytesReceived-load.BytesReceived), float64(now.BytesSent-load.BytesSent)
	c.hedges = now.Hedges - load.Hedges
	for i, m := range members {
		after, err := m.usage()
		if err != nil {
			return c, err
		}
		c.cpu += after.CPU - before[i].CPU
		c.memory = max(c.memory, after.Memory)
		c.in, c.out = max(c.in, after.In-before[i].In), max(c.out, after.Out-before[i].Out)
	}
	return c, nil
}

// workers are processes that groups are made of, and how they are reached.
type workers struct {
	*options
	members []*member
	meter   *shard.Meter
	pool    *shard.Pool
	data    shard.Data
}

// workers starts a number of processes with n rows each, to be stopped.
func (o *options) workers(n, count int) (w *workers, err error) {
	isa, err := cmvp.ISA()
	if err != nil {
		return nil, err
	}
	creds, err := o.credentials()
	if err != nil {
		return nil, err
	}
	w = &workers{options: o, meter: &shard.Meter{}, data: shard.Data{Address: "x", Covariance: o.covariance(), ISA: isa, Rows: n}}
	w.pool = shard.NewPool(w.meter, grpc.WithTransportCredentials(creds))
	for range count {
		m, err := o.start(n)
		if m != nil {
			w.members = append(w.members, m)
		}
		if err != nil {
			return nil, errors.Join(err, w.stop())
		}
	}
	return w, nil
}

// group returns a group of an operator and the first of the processes, size in all.
func (w *workers) group(local *cmvp.Operator, size int) *shard.Group {
	bandwidth := 1e15 // nothing is spared
	if w.exchange {
		bandwidth = 1e6
	}
	g := shard.New(shard.Config{Local: local, MinRows: 1, Bandwidth: bandwidth, Meter: w.meter, Log: slog.New(slog.DiscardHandler),
		Dial: func(name string) shard.Member { return w.pool.Member(name, w.data) }})
	var names []string
	for _, m := range w.members[:size-1] {
		names = append(names, m.address)
	}
	g.SetMembers(names...)
	return g
}

// stop ends the connections, then the processes.
func (w *workers) stop() error {
	errs := []error{w.pool.Close()}
	for _, m := range w.members {
		errs = append(errs, m.stop())
	}
	return errors.Join(errs...)
}

// scanLine returns the next line.
func scanLine(s *bufio.Scanner) (string, error) {
	if !s.Scan() {
		return "", errors.Join(errors.New("a member has ended"), s.Err())
	}
	return s.Text(), nil
}
