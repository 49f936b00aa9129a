package shard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/random"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Of the preconditioner that processes build under a limit of memory: 102 MB.
const (
	limitedRows = 16_000
	limitedRank = 800
)

// asMember makes the test's program a process of a group: the addresses of the others if it is to drive, "-" if it is to serve.
const asMember = "ULISSE_TEST_MEMBER"

// processMain is a process of a group: it is told its limit beyond what it has, builds or serves, and prints by how much it went beyond.
func processMain(role string) error {
	p := newProblem(kernel.RBF, limitedRows, 3, 1)
	var stop func()
	build := func() error { return nil }
	if role == "-" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		s := grpc.NewServer(ServerOptions()...)
		pb.RegisterTilesServer(s, NewServer(ServerConfig{Source: inputs{p.in}, Budget: parallel.NewBudget(1)}))
		go s.Serve(l)
		stop = s.Stop
		fmt.Println(l.Addr())
	} else {
		isa, err := cmvp.ISA()
		if err != nil {
			return err
		}
		pool := NewPool(nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
		d := Data{Address: "x", Covariance: p.cov, ISA: isa, Rows: limitedRows}
		g := New(Config{Local: p.operator(), MinRows: 1, Log: quiet, Dial: func(name string) Member { return pool.Member(name, d) }})
		g.eager = true
		g.SetMembers(strings.Split(role, ",")...)
		g.Set(p.theta, []float64{0.3})
		stop = func() { g.Close(); pool.Close() }
		build = func() error {
			pre, err := precond.BuildAny(context.Background(), "rpcholesky", g, limitedRank, random.Key{Seed: 1})
			if err == nil && pre.Rank() != limitedRank {
				err = fmt.Errorf("rank %d", pre.Rank())
			}
			return err
		}
		fmt.Println("ready")
	}
	defer stop()
	var limit int64
	if _, err := fmt.Scan(&limit); err != nil {
		return err
	}
	debug.FreeOSMemory()
	before, err := procStatus("VmRSS")
	if err == nil {
		err = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // forgets the peak so far
	}
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(before + limit)
	fmt.Println("begin")
	if err := build(); err != nil {
		return err
	}
	if role == "-" { // until it is asked
		var asked string
		if _, err := fmt.Scan(&asked); err != nil {
			return err
		}
	}
	peak, err := procStatus("VmHWM")
	if err != nil {
		return err
	}
	fmt.Println(peak - before)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// procStatus returns a number of bytes from /proc/self/status, by its name.
func procStatus(name string) (bytes int64, err error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, after, ok := strings.Cut(string(text), name+":")
	if !ok {
		return 0, errors.New("no " + name)
	}
	_, err = fmt.Sscan(after, &bytes)
	return bytes << 10, err
}

// process is one of a group.
type process struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Scanner
}

func startProcess(t *testing.T, role string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), asMember+"="+role), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &process{t, in, bufio.NewScanner(out)}
}

func (p *process) say(text any) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, text); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) line() string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatal("the process has ended: ", p.out.Err())
	}
	return p.out.Text()
}

// What a process has resident at most may be a quarter more than is planned, and 32 MB, for the runtime's own, buffers of gRPC, and what is collected late: 12 to 23 MB on
// cores that some 50 others wanted.
func overPlan(bytes float64) float64 { return 1.25*bytes + 32e6 }

// Processes of a group of four that are told not to take more than what is planned for them, build a preconditioner, and take no more: a driver and others, by their largest resident
// size, much less than the factor itself.
func TestBuildingWithinThePlannedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: seconds of processes")
	}
	if f, err := os.OpenFile("/proc/self/clear_refs", os.O_WRONLY, 0); err != nil {
		t.Skip("the largest resident size cannot be told here: ", err)
	} else {
		f.Close()
	}
	a := Apply{Rows: limitedRows, Rank: limitedRank}
	const others = 3
	plan := []float64{a.Own(1+others) + a.BuildingBytes()}
	processes, names := []*process{nil}, []string{}
	for range others {
		p := startProcess(t, "-")
		processes, names, plan = append(processes, p), append(names, p.line()), append(plan, a.Held(1+others)+a.SeedBytes())
	}
	processes[0] = startProcess(t, strings.Join(names, ","))
	processes[0].line()
	for i := len(processes) - 1; i >= 0; i-- {
		processes[i].say(int64(plan[i]))
		processes[i].line()
	}
	for i, p := range processes {
		if i > 0 {
			p.say("peak")
		}
		var peak float64
		if _, err := fmt.Sscan(p.line(), &peak); err != nil {
			t.Fatal(err)
		}
		t.Logf("process %d: %.1f MB at most, planned %.1f", i, peak/1e6, plan[i]/1e6)
		if peak > overPlan(plan[i]) {
			t.Errorf("process %d came to %.1f MB, planned %.1f", i, peak/1e6, plan[i]/1e6)
		}
	}
	if whole := 8.0 * limitedRows * limitedRank; overPlan(plan[0]) > whole {
		t.Errorf("%.1f MB are planned for the driver: this says nothing of %.1f", plan[0]/1e6, whole/1e6)
	}
}
