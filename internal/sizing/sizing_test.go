package sizing

import (
	"context"
	"math"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/driver"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/shard"
)

func problem(t *testing.T, spec string) (*job.Spec, *posterior.Problem) {
	t.Helper()
	s, err := job.ParseString("name: test\ndata: {synthetic: {n: 300, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 1}}\n" + spec)
	if err != nil {
		t.Fatal(err)
	}
	data, err := s.Load(context.Background(), nil, parallel.NewBudget(1))
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Problem(data)
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

// model returns one whose rates are nothing but those that a test sets.
func model(t *testing.T, rows int, spec string) *Model {
	t.Helper()
	s, p := problem(t, spec)
	m := New(Config{Spec: s, Problem: p, Rows: rows, Iterations: 10, Probes: 4, Worker: Worker{Cores: 8, Bandwidth: 1e15}})
	zero := []float64{0, 0}
	m.Rates = &Rates{Columns: []int{1, 17}, Double: zero, Single: zero, Forms: zero}
	return m
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*math.Abs(want)) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

const (
	fixedRank = "solver: {preconditioner: {kind: rpcholesky, rank: 1000}}\n"
	gradients = fixedRank + "sampler: {method: fisher}\n"
)

// A gradient has as many parts of each kind as the estimator makes: each rate alone gives its
// count.
func TestPartsOfAGradient(t *testing.T) {
	const n, s = 1e6, 5.0
	for _, x := range []struct {
		what string
		set  func(r *Rates)
		want float64 // processor seconds of one worker
	}{
		{"single", func(r *Rates) { r.Single = []float64{1e-9, 1e-9} }, 10 * n * n * 1e-9},
		{"double", func(r *Rates) { r.Double = []float64{1e-9, 1e-9} }, 2 * n * n * 1e-9},
		{"forms", func(r *Rates) { r.Forms = []float64{1e-9, 17e-9} }, n * n * 5e-9},
		{"preconditioner", func(r *Rates) { r.Apply = 1e-9 }, 11 * n * 1000 * s * 1e-9},
		{"probes", func(r *Rates) { r.Probe = 1e-9 }, n * 1000 * (s - 1) * 1e-9},
		{"vectors", func(r *Rates) { r.Vector = 1e-9 }, 10 * n * s * 1e-9},
		{"sums", func(r *Rates) { r.Reduce = 1e-9 }, 0}, // of groups alone
	} {
		m := model(t, n, gradients)
		x.set(m.Rates)
		g := m.Gradient(1)
		near(t, x.what, g.Processor, x.want, 1e-9)
		cores := 8.0
		if x.what == "vectors" { // a column is the affair of one core
			cores = s
		}
		near(t, x.what+", time", g.Seconds, x.want/cores, 1e-9)
	}
	sparse := model(t, n, gradients) // of a hundredth of the pairs, all but what is of no pair takes a hundredth
	sparse.Work.Near = 0.01
	sparse.Rates.Single, sparse.Rates.Forms, sparse.Rates.Vector = []float64{1e-9, 1e-9}, []float64{1e-9, 17e-9}, 1e-9
	near(t, "a hundredth of the pairs", sparse.Gradient(1).Processor, 0.01*(10*n*n*1e-9+n*n*5e-9)+10*n*s*1e-9, 1e-9)
	joint := model(t, n, fixedRank+"sampler: {method: exact}\n")
	joint.Rates.Single = []float64{1e-9, 1e-9}
	near(t, "joint", joint.Gradient(1).Processor, 2*10*n*n*1e-9, 1e-9)
}

// A group shortens products, and nothing else: Amdahl's law.
func TestWhatTheDriverDoesAlone(t *testing.T) {
	m := model(t, 1e6, gradients)
	m.Rates.Single = []float64{8e-9, 8e-9} // 1000 s of 8 cores
	m.Rates.Apply = 8e-8                   // 50 s
	m.Rates.Vector = 1e-6 * 3              // 3 s, a column on each of five cores
	near(t, "share", m.Alone(), 3.0/1053, 1e-9)
	for _, members := range []int{2, 4, 36, 72, 300} {
		p := m.Iteration(members)
		near(t, "product", p.Product, 1000/float64(members), 0.1) // half a piece is waited for
		near(t, "preconditioner", p.Precondition, 50/float64(min(members, 32)), 0.02)
		near(t, "vectors", p.Vectors, 3, 1e-9)
		if gain := 1053 / p.Seconds(); gain > 1/m.Alone() {
			t.Errorf("%d members are %v times as fast, beyond %v", members, gain, 1/m.Alone())
		}
	}
	m.Rates.Vector = 0
	m.Rates.Reduce = 1e-9 // 9 sums a row and column, added up by five cores
	near(t, "sums", m.Iteration(2).Vectors, 9*5*1e6*1e-9/5, 1e-3)
	m.Worker.Bandwidth = 1.25e7 // 0.1 Gb/s: all sums come in through the driver's card
	if p := m.Iteration(72); p.Product < 8*9*5e6*0.5/1.25e7 {
		t.Errorf("a slow network: %v s", p.Product)
	}
	m.Worker.Bandwidth = 1.25e6 // all rows go out and come in, which takes longer than they do
	near(t, "preconditioner on a slow network", m.Iteration(72).Precondition, 50, 1e-9)
}

// Chains come first; then workers join their groups, from so many rows on.
func TestChainsFirst(t *testing.T) {
	m := model(t, 1e6, gradients)
	m.Rates.Single = []float64{8e-9, 8e-9}
	row := func(workers int) Row { t.Helper(); return m.Row(workers) }
	// Groups compute a product of one column more, as a check.
	for workers, round := range map[int]float64{1: 40_000, 2: 20_000, 3: 20_000, 4: 10_000, 7: 10_000, 8: 5_500, 11: 5_500, 12: 11_000.0 / 3} {
		near(t, "round", row(workers).Round, round, 0.01)
	}
	near(t, "draws an hour", row(4).Draws, 4*3600/10_000.0, 0.01)
	near(t, "efficiency of 4", row(4).Efficiency, 1, 0.05)
	if e := row(7).Efficiency; e > 0.62 {
		t.Errorf("three workers that are of no use leave an efficiency of %v", e)
	}
	if n := m.Recommended(4); n%4 != 0 || n < 36 { // 5, 6 and 7 are no better than 4
		t.Errorf("%d workers are recommended", n)
	}
	small := model(t, shard.DefaultSplitRows-1, gradients)
	small.Rates.Single, small.Rates.Double = []float64{8e-9, 8e-9}, []float64{8e-9, 8e-9}
	if a, b := small.Row(4), small.Row(300); a.Round != b.Round || small.Recommended(300) != 4 {
		t.Errorf("few rows: %v, %v; %d recommended", a, b, small.Recommended(300))
	}
}

// What a run takes is what its parts take.
func TestRunIsTheSumOfItsParts(t *testing.T) {
	m := model(t, 1e6, gradients)
	m.Rates.Double, m.Rates.Build = []float64{8e-9, 8e-9}, 8e-12
	r := m.Row(4)
	gradient, build := 2000.0, 1e6*1e6*8e-12/8
	// 10 + 2·3 gradients on all rows with all workers, after 10 of each subset; then P.
	var subsets float64
	for _, n := range []float64{2048, 8192, 32768, 131072} {
		subsets += 10 * 2000 * (n / 1e6) * (n / 1e6)
	}
	// Products of one column are there twice: they are checked.
	near(t, "mode", r.Mode, subsets+float64(driver.PrepareGradients+2*3)*(gradient/4+250)+build, 0.01)
	near(t, "first", r.First, r.Mode+build+50*gradient, 0.01)
	near(t, "run", r.Run, r.First+500*gradient, 0.01)
	near(t, "core-hours", r.CoreHours, 4*8*r.Run/3600, 1e-9)
}

// Memory of a driver grows with its chains and with the rank, and has the sums of a group.
func TestMemory(t *testing.T) {
	m := model(t, 1e6, gradients)
	one, four := m.Row(4), m.Row(1)
	if one.DriverBytes >= four.DriverBytes {
		t.Errorf("one chain takes %d bytes, four take %d", one.DriverBytes, four.DriverBytes)
	}
	// Of a group of two the driver has half of the factor, of 10⁶×1000 numbers in 32 chunks. At most it has beside it half of the factor at the pivots and either LᵀL with its eight blocks
	// on their way, four times, or LᵀL, its packed factor and its inverse; and two blocks of columns of a chunk. Alone it has two blocks of all.
	const n, rank0, sums, square = 1_000_000, 1000, 8 * 9 * 5e6, 8 * 1000 * 1000
	growing, grown := 8*256*float64(n)/32, square*0.5
	building := grown + max(square+8*4*onItsWay(rank0), 2.5*square) + growing
	near(t, "sums and rows", float64(m.Row(8).DriverBytes-one.DriverBytes), sums+building-8*n*rank0/2-8*256*n-2.5*square, 1e-3)
	// Of two members each holds half of the rows of the factor.
	near(t, "rows", float64(m.Row(8).MemberBytes-m.Row(16).MemberBytes), 8*1e9*(1.0/2-1.0/4)+8*9*5e6*(1.0/2-1.0/4), 5e-3)
	near(t, "a member", float64(m.Row(8).MemberBytes), 8*n*(2*2+1+5)+sums/2+8*n*rank0/2+grown+growing, 1e-3)
	if one.MemberBytes != 0 || m.Row(8).MemberBytes >= one.DriverBytes {
		t.Errorf("members take %d, %d bytes", one.MemberBytes, m.Row(8).MemberBytes)
	}
	if m.FittingRank() != 0 || !one.Fits {
		t.Error("without a memory nothing fits, or all does not")
	}
	m.Worker.Memory = 4 << 30
	if best := m.Recommended(300); m.Row(4).Fits || m.Row(8).Fits || best <= 8 || !m.Row(best).Fits {
		t.Errorf("%d bytes fit into 4 GiB, %d are recommended", m.Row(4).DriverBytes, best)
	}
	rank := m.FittingRank()
	for _, x := range []struct {
		rank int
		fits bool
	}{{rank, true}, {rank + 1, false}} {
		s := *m.spec
		s.Sampler.Chains = 1
		mem, r := driver.NewMemory(&s, n, 2, 8), float64(x.rank)
		bytes := float64(mem.Data+mem.Vectors+mem.Dense) + sums + 8*n*r/2 + 8*r*r/2 + max(8*r*r+8*4*onItsWay(x.rank), 2.5*8*r*r) + growing
		if (bytes <= 4<<30) != x.fits {
			t.Errorf("rank %d takes %v bytes", x.rank, bytes)
		}
	}
}

// onItsWay returns how many numbers up to 32 blocks of 128 rows of LᵀL have, from the diagonal on, whose rows are padded to eight.
func onItsWay(rank int) (numbers float64) {
	for p := range 32 {
		if left := rank - 128*p; left > 0 {
			numbers += float64(min(128, left) * ((left + 7) / 8 * 8))
		}
	}
	return numbers
}

// A million rows and a preconditioner of rank 16√n, 128 GB, fit workers of 8 GiB if each of four chains, or the one, has a group of 72: by hand, 1/32 of the factor
// for those that hold some, and for the driver no row but matrices of order 16,000.
func TestAMillionRowsOnSmallWorkers(t *testing.T) {
	m := model(t, 1e6, "solver: {preconditioner: {kind: rpcholesky, rank: 16000}}\nsampler: {method: fisher, chains: 1}\n")
	m.Work.Inputs = 8
	m.Worker.Memory = 8 << 30
	r := m.Row(72)
	const n, rank, s = 1e6, 16000.0, 5.0
	vectors := 8 * n * (9 + 8 + 12*s)
	near(t, "driver", float64(r.DriverBytes), vectors+8*9*n*s+8*rank*rank*3+8*256*n/32, 0.02)
	near(t, "member", float64(r.MemberBytes), 8*n*rank/32+8*rank*rank/2+8*256*n/32+8*n*(17+s), 0.05)
	if !r.Fits || m.Row(4).Fits {
		t.Errorf("%d and %d bytes of %d; with four workers %d", r.DriverBytes, r.MemberBytes, m.Worker.Memory, m.Row(4).DriverBytes)
	}
	driving, member := driver.GroupMemory(m.spec, 1e6, 8, 72)
	near(t, "what a driver is placed by", float64(driving), float64(r.DriverBytes), 0.02)
	near(t, "and a member", float64(member), float64(r.MemberBytes), 0.05)
}

func TestWhatIsNotKnown(t *testing.T) {
	for spec, ok := range map[string]bool{
		"": true, "sampler: {method: exact}\n": true, "sampler: {method: cholesky}\n": false, "sampler: {method: auto}\n": true,
		"solver: {method: cg, preconditioner: {kind: none}}\nsampler: {probe_kind: rademacher}\n": true, "solver: {preconditioner: {kind: regularized}}\n": false,
	} {
		s, err := job.ParseString("name: test\ndata: {path: x, target: y}\n" + spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(s); (err == nil) != ok {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

// The stages of a staged run follow each other, and the items of each are computed side by side: by hand.
func TestStagesOnWorkers(t *testing.T) {
	s, p := problem(t, "sampler: {method: auto, chains: 2, draws: 100}\n")
	course := func() *driver.Course {
		return &driver.Course{Prepare: 1, ByFactor: true, Stages: []driver.Staging{
			{Kind: "climb", Evaluations: 80, Items: 8, Seconds: 80}, // on this machine's two cores: each item has 20 s of a core
			{Kind: "propose", Proposals: 200, Items: 32, Fitting: 3, Seconds: 16, Sampling: true},
		}}
	}
	few := newStaged(Config{Spec: s, Problem: p, Rows: 1000, Worker: Worker{Cores: 4}}, course(), 2)
	for workers, want := range map[int][2]float64{ // until the climbs have ended, and of the proposals
		1:  {0.5 + 2*20, 8}, // four cores: two rounds of items
		2:  {0.5 + 20, 4},   // eight: one
		8:  {0.5 + 20, 1},   // a climb goes on where it is
		40: {0.5 + 20, 1},   // as many items as there are are computed side by side
	} {
		r := few.Row(workers)
		near(t, "mode", r.Mode, want[0], 1e-12)
		near(t, "run", r.Run, want[0]+1.5+want[1], 1e-12)
		near(t, "first", r.First, r.Run, 1e-12)
		near(t, "draws", r.Draws, 200/want[1]*3600, 1e-12)
		near(t, "core-hours", r.CoreHours, float64(4*workers)*r.Run/3600, 1e-12)
	}
	if n := few.Recommended(8); n != 2 {
		t.Errorf("%d workers are recommended: more have nothing to do in most of the run", n)
	}
	many := newStaged(Config{Spec: s, Problem: p, Rows: driver.OwnFactorRows + 1, Worker: Worker{Cores: 4}}, course(), 2)
	near(t, "an item on all cores of a worker", many.Row(8).Mode, 0.5+5, 1e-12)
	near(t, "as many climbs as a worker has", many.Row(3).Mode, 0.5+3*5, 1e-12)
	if rows := many.Table(5); len(rows) != 8 || rows[0].Efficiency != 1 || !rows[0].Fits || rows[0].DriverBytes == 0 {
		t.Errorf("%+v", rows)
	}
	many.Worker.Memory = 1
	if many.Recommended(8) != 0 {
		t.Error("a byte is enough")
	}
}

// All rates are measured, and those of products grow with the columns.
func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for a second")
	}
	_, p := problem(t, "")
	r, err := measure(t.Context(), p, 5, []int{1, 5, 17}, "rpcholesky", 40, parallel.NewBudget(2))
	if err != nil {
		t.Fatal(err)
	}
	isa, _ := cmvp.ISA()
	if r.InstructionSet != isa {
		t.Errorf("instruction set %s", r.InstructionSet)
	}
	for name, x := range map[string][]float64{"double": r.Double, "single": r.Single, "forms": r.Forms, "others": {r.Vector, r.Reduce, r.Apply, r.Probe, r.Build}} {
		for _, v := range x {
			if !(v > 0) || v > 1e-4 {
				t.Errorf("%s: %v", name, x)
			}
		}
	}
	if r.Double[2] < r.Double[0] {
		t.Errorf("17 columns are quicker than one: %v", r.Double)
	}
	if none, err := measure(t.Context(), p, 1, []int{1}, "none", 0, parallel.NewBudget(1)); err != nil || none.Apply != 0 || none.at(none.Double, 9) != none.Double[0] {
		t.Errorf("%v, %v", none, err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := measure(stopped, p, 1, []int{1}, "none", 0, parallel.NewBudget(1)); err == nil {
		t.Error("measured though it was stopped")
	}
}

// Between numbers of columns rates lie on the line through the two that are nearest.
func TestRatesBetween(t *testing.T) {
	r := &Rates{Columns: []int{1, 5, 17}}
	rates := []float64{2, 4, 16}
	for columns, want := range map[int]float64{1: 2, 3: 3, 5: 4, 11: 10, 17: 16, 32: 31} {
		near(t, "rate", r.at(rates, columns), want, 1e-12)
	}
}
