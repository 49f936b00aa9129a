package tile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func TestUpdate(t *testing.T) {
	for _, isa := range Available() {
		for _, strips := range []int{0, 1, 2, 3, 7} {
			for _, k := range []int{4, 8, 40, 256} {
				t.Run(fmt.Sprintf("%v/strips=%d/k=%d", isa, strips, k), func(t *testing.T) { testUpdate(t, isa, strips, k) })
			}
		}
	}
}

func testUpdate(t *testing.T, isa ISA, strips, k int) {
	rnd := rand.New(rand.NewPCG(uint64(strips), uint64(k)))
	ld := Strip * max(Strip, k+4)
	c := newGuarded[float64](strips*ld, normal(rnd, 1))
	a := newGuarded[float64](strips*ld, normal(rnd, 1))
	b := newGuarded[float64](k*Strip, normal(rnd, 1))
	update := FactorsFor(isa).Update
	update(c.in, a.in, b.in, ld, strips, k)
	c.checkGuards(t, "c")
	a.checkUnchanged(t, "a")
	b.checkUnchanged(t, "b")
	for at, got := range c.in {
		s, i, r := at/ld, at%ld/Strip, at%Strip
		if i >= Strip {
			if got != c.before[at] {
				t.Fatalf("strip %d, column %d was changed", s, i)
			}
			continue
		}
		want, size := c.before[at], math.Abs(c.before[at])
		for j := range k {
			x := a.in[s*ld+j*Strip+r] * b.in[j*Strip+i]
			want -= x
			size += math.Abs(x)
		}
		if !(math.Abs(got-want) <= float64(k)*epsilon[float64]()*size) {
			t.Fatalf("strip %d, row %d, column %d is %v, want %v", s, r, i, got, want)
		}
	}

	// The same bits in two calls.
	if k >= 8 {
		again := newGuarded[float64](strips*ld, func(i int) float64 { return c.before[i] })
		update(again.in, a.in, b.in, ld, strips, 4)
		if strips > 0 {
			update(again.in, a.in[4*Strip:], b.in[4*Strip:], ld, strips, k-4)
		}
		for i, x := range c.in {
			if again.in[i] != x {
				t.Fatalf("element %d is %v in two calls, %v in one", i, again.in[i], x)
			}
		}
	}
}

func TestSolve(t *testing.T) {
	for _, isa := range Available() {
		for _, strips := range []int{0, 1, 2, 5} {
			t.Run(fmt.Sprintf("%v/strips=%d", isa, strips), func(t *testing.T) { testSolve(t, isa, strips) })
		}
	}
}

// What was solved for gives the right-hand side back.
func testSolve(t *testing.T, isa ISA, strips int) {
	rnd := rand.New(rand.NewPCG(3, uint64(strips)))
	const ld = Strip * (Strip + 3)
	c := newGuarded[float64](strips*ld, normal(rnd, 1))
	l := newGuarded[float64](Strip*Strip, normal(rnd, 0.5)) // with an upper triangle that does not count
	inv := newGuarded[float64](Strip, func(i int) float64 { return 1 / (1 + float64(i)) })
	FactorsFor(isa).Solve(c.in, l.in, inv.in, ld, strips)
	c.checkGuards(t, "c")
	l.checkUnchanged(t, "l")
	inv.checkUnchanged(t, "inv")
	for at := range c.in {
		s, i, r := at/ld, at%ld/Strip, at%Strip
		if i >= Strip {
			if c.in[at] != c.before[at] {
				t.Fatalf("strip %d, column %d was changed", s, i)
			}
			continue
		}
		got := c.in[at] / inv.in[i]
		size := math.Abs(got)
		for j := range i {
			x := c.in[s*ld+j*Strip+r] * l.in[j*Strip+i]
			got += x
			size += math.Abs(x)
		}
		if !(math.Abs(got-c.before[at]) <= 4*Strip*epsilon[float64]()*size) {
			t.Fatalf("strip %d, row %d, column %d gives %v back, want %v", s, r, i, got, c.before[at])
		}
	}
}
