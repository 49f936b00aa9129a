package shard

import (
	"fmt"
	"math"
	"testing"
)

// The model of a product tells what the scheduler makes of one, on simulated cards and cores.
func TestCostAgainstSimulation(t *testing.T) {
	for _, c := range []struct {
		n, s, members int
		rate          float64
	}{
		{20_000, 9, 3, 1e10}, {100_000, 1, 10, 2e10}, {100_000, 5, 2, 1.48e10}, {100_000, 5, 10, 1.48e10}, {100_000, 5, 36, 1.48e10},
		{100_000, 17, 10, 7.8e9}, {100_000, 17, 36, 7.8e9}, {100_000, 17, 72, 7.8e9}, {1_000_000, 1, 36, 2e10}, {1_000_000, 5, 72, 1.48e10},
	} {
		t.Run(fmt.Sprintf("n=%d/s=%d/members=%d", c.n, c.s, c.members), func(t *testing.T) {
			o := scenario{n: c.n, s: c.s, members: c.members, rate: c.rate, gathered: true}.simulate(t, 2)
			cost := Cost{Rows: c.n, Columns: c.s, Rate: c.rate, Bandwidth: bandwidth}
			got, want := cost.Seconds(o.used), o.times[1].Seconds()
			if ratio := got / want; !(ratio > 1/1.4 && ratio < 1.4) {
				t.Errorf("the model says %.3g s, the simulation %.3g s", got, want)
			}
		})
	}
}

// So does that of products whose sums members exchange.
func TestCostOfExchangesAgainstSimulation(t *testing.T) {
	for _, c := range []struct {
		n, s, members int
		rate          float64
	}{{100_000, 5, 36, 3e10}, {100_000, 5, 72, 3e10}, {1_000_000, 1, 10, 2e10}, {1_000_000, 5, 72, 1.48e10}, {1_000_000, 1, 200, 2e10}} {
		t.Run(fmt.Sprintf("n=%d/s=%d/members=%d", c.n, c.s, c.members), func(t *testing.T) {
			plan := Cost{Rows: c.n, Columns: c.s, Rate: c.rate, Bandwidth: bandwidth, Cores: iterationCores}.Plan(c.members)
			if !plan.Exchange {
				t.Fatal("sums are gathered")
			}
			o := scenario{n: c.n, s: c.s, members: c.members, rate: c.rate}.simulate(t, 2)
			if ratio := plan.Seconds / o.times[1].Seconds(); !(ratio > 1/1.4 && ratio < 1.4) {
				t.Errorf("the model says %.3g s, the simulation %v", plan.Seconds, o.times[1])
			}
		})
	}
}

// What does not travel takes k members a k-th, as far as units can be dealt out evenly, and costs
// the same in all.
func TestCostOfAFastNetwork(t *testing.T) {
	c := Cost{Rows: 1_000_000, Columns: 5, Rate: 1e10, Bandwidth: 1e15, Cores: 0}
	for _, x := range []struct {
		members int
		units   float64 // of the busiest, of 72
	}{{1, 72}, {2, 36}, {5, 15}, {10, 8}, {72, 1}} {
		if got, want := c.Seconds(x.members), 1e12/1e10*x.units/72; math.Abs(got-want) > 1e-3*want+3*oneWay {
			t.Errorf("%d members take %v s, want %v", x.members, got, want)
		}
	}
	if alone := c.Processor(1); math.Abs(alone-100) > 1e-9 {
		t.Errorf("%v processor seconds alone, want 100", alone)
	}
	// 10 members get 9/10 of the sums: 9 numbers of 8 bytes for each row and column.
	if _, in := c.Traffic(10); math.Abs(in-9*8*5e6*0.9) > 1 {
		t.Errorf("%v bytes come in", in)
	}
}
