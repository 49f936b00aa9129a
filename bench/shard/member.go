package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"

	"google.golang.org/grpc"

	"github.com/ulisse-gp/ulisse/internal/cputime"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/shard"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// usage is what a member has used so far: processor seconds, bytes of tile traffic, and the most memory.
type usage struct{ CPU, In, Out, Memory float64 }

// member is a process of a group, as the driver's process sees it: it answers each line that
// it reads with its usage.
type member struct {
	address string
	cmd     *exec.Cmd
	ask     io.WriteCloser
	answers *bufio.Scanner
}

// start starts this program as a member.
func (o *options) start(n int) (*member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-member", strconv.Itoa(n), "-d", strconv.Itoa(o.d), "-cores", strconv.Itoa(o.cores), "-certs", o.certs)
	cmd.Stderr = os.Stderr
	if o.limit > 0 {
		cmd.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%d", o.limit))
	}
	ask, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	m := &member{cmd: cmd, ask: ask, answers: bufio.NewScanner(out)}
	m.address, err = scanLine(m.answers)
	return m, err
}

func (m *member) usage() (u usage, err error) {
	if _, err := fmt.Fprintln(m.ask); err != nil {
		return u, err
	}
	line, err := scanLine(m.answers)
	if err != nil {
		return u, err
	}
	return u, json.Unmarshal([]byte(line), &u)
}

// stop ends the member, which sees that nobody will ask any more.
func (m *member) stop() error { return errors.Join(m.ask.Close(), m.cmd.Wait()) }

// source has one set of inputs.
type source struct{ in *kernel.Inputs }

func (s source) Inputs(context.Context, string) (*kernel.Inputs, error) { return s.in, nil }

// serve is a member: it prints its address, then its usage for each line that it reads.
func (o *options) serve(n int) error {
	creds, err := o.credentials()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	meter := &shard.Meter{}
	peers := shard.NewPool(meter, grpc.WithTransportCredentials(creds))
	defer peers.Close()
	s := grpc.NewServer(append(shard.ServerOptions(), grpc.Creds(creds))...)
	pb.RegisterTilesServer(s, shard.NewServer(shard.ServerConfig{Source: source{o.inputs(n)}, Budget: parallel.NewBudget(o.cores), Meter: meter, Peers: peers}))
	go s.Serve(l)
	defer s.Stop()
	fmt.Println(l.Addr())
	asked := bufio.NewScanner(os.Stdin)
	for asked.Scan() {
		load := meter.Load()
		u := usage{CPU: cputime.Seconds(), In: float64(load.BytesReceived), Out: float64(load.BytesSent), Memory: memory()}
		if err := json.NewEncoder(os.Stdout).Encode(u); err != nil {
			return err
		}
	}
	return asked.Err()
}
