package random

import (
	"math"
	"testing"
)

// Every part of the key must change the stream. With 64-bit words an equal
// first word by chance has probability 2⁻⁶⁴.
func TestKeysNameDifferentStreams(t *testing.T) {
	seen := map[uint64]string{}
	add := func(name string, k Key, p Purpose, index int) {
		w := k.Stream(p, index).Uint64()
		if old, ok := seen[w]; ok {
			t.Errorf("%s begins like %s", name, old)
		}
		seen[w] = name
		if k.Stream(p, index).Uint64() != w {
			t.Errorf("%s is not repeatable", name)
		}
	}
	base := Key{Seed: 1, Chain: 1, Iter: 1}
	add("base", base, Probe, 0)
	add("seed", Key{2, 1, 1}, Probe, 0)
	add("chain", Key{1, 2, 1}, Probe, 0)
	add("iter", Key{1, 1, 2}, Probe, 0)
	add("purpose", base, Noise, 0)
	add("index", base, Probe, 1)
}

// The first words of a known key are fixed forever: a change here changes what
// every seed means.
func TestStreamIsPinned(t *testing.T) {
	r := Key{Seed: 1, Chain: 2, Iter: 3}.Stream(Probe, 4)
	got := [2]uint64{r.Uint64(), r.Uint64()}
	want := [2]uint64{0x7785f5d833f415bc, 0x55c3b17238ece590}
	if got != want {
		t.Errorf("got %#x, want %#x", got, want)
	}
}

// Mean and variance of 10⁵ values, each within 5 standard errors: false alarms
// about 1 in 10⁶ for other seeds; the seed is fixed.
func TestMoments(t *testing.T) {
	const n = 100000
	x := make([]float64, n)
	for name, fill := range map[string]func(){
		"normal":     func() { Normal(Key{Seed: 7}.Stream(Noise, 0), x) },
		"rademacher": func() { Rademacher(Key{Seed: 7}.Stream(Probe, 0), x) },
	} {
		fill()
		var m, v float64
		for _, xi := range x {
			m += xi / n
			v += xi * xi / n
		}
		if math.Abs(m) > 5/math.Sqrt(n) || math.Abs(v-1) > 5*math.Sqrt(2.0/n) {
			t.Errorf("%s: mean %v, second moment %v", name, m, v)
		}
	}
}
