package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

// approximate makes an approximation for each operator, whose sums over rows are those of the operator if it is a group.
func (p *problem) approximate(ops ...operator) {
	z := sparse.Induce(sparse.Rows, p.in, p.inducing, make([]bool, p.d), random.Key{Seed: 1}, parallel.NewBudget(p.cores))
	if p.approx == nil {
		p.approx = map[operator]*sparse.Approximation{}
	}
	for _, op := range ops {
		a := sparse.New(sparse.SGPR, p.covariance(), p.in, z, op.Budget())
		if s, ok := op.(sparse.Summer); ok {
			a.Share(s)
		}
		p.approx[op] = a
	}
}

// slope takes the bound and its gradient, which it leaves in dst.
func (p *problem) slope(op operator) error {
	v, err := p.approx[op].Gradient(context.Background(), p.covariance().At(theta), noise, p.v[0], false)
	if err != nil {
		return err
	}
	p.dst[0][0] = v.LogDensity
	copy(p.dst[0][1:], v.Theta)
	return nil
}

// memory returns the most bytes that this process has had in memory, as far as the system tells.
func memory() float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	var kB float64
	if _, after, ok := strings.Cut(string(text), "VmHWM:"); ok {
		fmt.Sscan(after, &kB)
	}
	return 1000 * kB
}
