// Command cmvp times a covariance product K·V, and the same product by other
// software where it is installed, in one run on the same numbers:
//
//	go run ./bench/cmvp -n 22784 -d 8 -s 1 -threads 1
//
// The peers are PyTorch on the CPU, which computes K in blocks of rows, and
// NumPy with its BLAS, which multiplies by a K that is stored. Without them it
// says so and times ours. Ratios are of processor time, in which other work on
// the machine shows less; with several threads, those that wait spinning count.
package main

import (
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

//go:embed peer.py
var peerScript string

// product is a covariance product to time.
type product struct {
	N, D, S, Threads, Repeat int
	Kernel                   string
	Tau                      float64

	x []float64   // N×D
	v [][]float64 // S columns of N
}

func main() {
	p := product{Tau: 0.1}
	flag.IntVar(&p.N, "n", 22784, "rows")
	flag.IntVar(&p.D, "d", 8, "inputs")
	flag.IntVar(&p.S, "s", 1, "columns")
	flag.IntVar(&p.Threads, "threads", 1, "threads")
	flag.IntVar(&p.Repeat, "repeat", 5, "products to take the median of")
	flag.StringVar(&p.Kernel, "kernel", "rbf", "rbf or matern52")
	python := flag.String("python", "", "Python with the peers (default: the first of python3, /usr/bin/python3 that has one)")
	flag.Parse()
	if err := run(&p, *python); err != nil {
		fmt.Fprintln(os.Stderr, "cmvp:", err)
		os.Exit(1)
	}
}

func run(p *product, python string) error {
	family, err := kernel.ParseFamily(p.Kernel)
	if err != nil {
		return err
	}
	isa, err := cmvp.ISA()
	if err != nil {
		return err
	}
	if p.N < 1 || p.D < 1 || p.S < 1 || p.Threads < 1 || p.Repeat < 1 {
		return errors.New("sizes must be positive")
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	p.x = normal(rnd, p.N*p.D)
	for range p.S {
		p.v = append(p.v, normal(rnd, p.N))
	}
	fmt.Printf("K·V, %s, n=%d d=%d s=%d, %d threads of %d; ulisse with %s\n\n", p.Kernel, p.N, p.D, p.S, p.Threads, runtime.NumCPU(), isa)
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "program\tprecision\tK\tseconds\tprocessor s\tns/pair\ttimes ulisse\terror")

	want, ours := [][]float64(nil), map[string]float64{}
	for _, precision := range []string{"float64", "float32"} {
		y, t, err := p.ours(family, precision)
		if err != nil {
			return err
		}
		if want == nil {
			want = y
		}
		ours[precision] = t.cpu
		p.print(tw, "ulisse", precision, "computed", t, ours, difference(y, want))
	}
	missing := []string{}
	for _, peer := range []struct{ module, precision, k string }{
		{"torch", "float64", "computed"}, {"torch", "float32", "computed"},
		{"numpy", "float64", "stored"}, {"numpy", "float32", "stored"},
	} {
		exe := find(python, peer.module)
		if exe == "" {
			if !slices.Contains(missing, peer.module) {
				missing = append(missing, peer.module)
			}
			continue
		}
		y, version, t, err := p.peer(exe, peer.module, peer.precision)
		if err != nil {
			return fmt.Errorf("%s: %w", peer.module, err)
		}
		p.print(tw, peer.module+" "+version, peer.precision, peer.k, t, ours, difference(y, want))
	}
	tw.Flush()
	for _, m := range missing {
		fmt.Printf("\n%s is not installed: not compared.\n", m)
	}
	return nil
}

// timing is the median wall and processor time of a product.
type timing struct{ wall, cpu float64 }

func (p *product) print(tw *tabwriter.Writer, name, precision, k string, t timing, ours map[string]float64, err float64) {
	fmt.Fprintf(tw, "%s\t%s\t%s\t%.4f\t%.4f\t%.3f\t%.2f\t%.1e\n", name, precision, k, t.wall, t.cpu,
		1e9*t.cpu/float64(p.N)/float64(p.N), t.cpu/ours[precision], err)
}

func normal(rnd *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = rnd.NormFloat64()
	}
	return x
}

// difference returns max |a−b| / max |b|.
func difference(a, b [][]float64) float64 {
	var e, most float64
	for c := range b {
		for i := range b[c] {
			e = max(e, math.Abs(a[c][i]-b[c][i]))
			most = max(most, math.Abs(b[c][i]))
		}
	}
	return e / most
}

// ours returns our product and its times.
func (p *product) ours(f kernel.Family, precision string) ([][]float64, timing, error) {
	ctx := context.Background()
	budget := parallel.NewBudget(p.Threads)
	if err := budget.Acquire(ctx); err != nil {
		return nil, timing{}, err
	}
	op := cmvp.New(kernel.NewInputs(p.N, p.D, p.x), kernel.Single(f, p.D, false), budget)
	op.Set([]float64{1, p.Tau}, []float64{0})
	mul := op.Mul
	if precision == "float32" {
		mul = op.MulSingle
	}
	y := make([][]float64, p.S)
	for c := range y {
		y[c] = make([]float64, p.N)
	}
	var wall, cpu []float64
	for i := range p.Repeat + 1 {
		start, used := time.Now(), cputime.Seconds()
		if err := mul(ctx, y, p.v); err != nil {
			return nil, timing{}, err
		}
		if i > 0 { // the first one allocates
			wall, cpu = append(wall, time.Since(start).Seconds()), append(cpu, cputime.Seconds()-used)
		}
	}
	slices.Sort(wall)
	slices.Sort(cpu)
	return y, timing{wall[len(wall)/2], cpu[len(cpu)/2]}, nil
}

// find returns a Python that can import the module, or "".
func find(python, module string) string {
	candidates := []string{python}
	if python == "" {
		candidates = []string{"python3", "/usr/bin/python3"}
	}
	for _, exe := range candidates {
		if exec.Command(exe, "-c", "import "+module).Run() == nil {
			return exe
		}
	}
	return ""
}

// peer runs the product in Python and returns its result, the version of the
// module and its times.
func (p *product) peer(exe, module, precision string) (y [][]float64, version string, t timing, err error) {
	dir, err := os.MkdirTemp("", "cmvp")
	if err != nil {
		return nil, "", t, err
	}
	defer os.RemoveAll(dir)
	if err := write(filepath.Join(dir, "x"), p.x); err != nil {
		return nil, "", t, err
	}
	if err := write(filepath.Join(dir, "v"), slices.Concat(p.v...)); err != nil {
		return nil, "", t, err
	}
	spec, err := json.Marshal(p)
	if err != nil {
		return nil, "", t, err
	}
	cmd := exec.Command(exe, "-c", peerScript, module, precision, dir, string(spec))
	threads := fmt.Sprint(p.Threads)
	cmd.Env = append(os.Environ(), "OPENBLAS_NUM_THREADS="+threads, "OMP_NUM_THREADS="+threads, "MKL_NUM_THREADS="+threads)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, "", t, err
	}
	var result struct {
		Version            string
		Seconds, Processor float64
	}
	if err := json.Unmarshal(out, &result); err != nil {
		return nil, "", t, err
	}
	all := make([]float64, p.N*p.S)
	if err := read(filepath.Join(dir, "y"), all); err != nil {
		return nil, "", t, err
	}
	return slices.Collect(slices.Chunk(all, p.N)), result.Version, timing{result.Seconds, result.Processor}, nil
}

func write(path string, x []float64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := binary.Write(f, binary.LittleEndian, x); err != nil {
		return err
	}
	return f.Close()
}

func read(path string, x []float64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return binary.Read(f, binary.LittleEndian, x)
}
