package tile

import "time"

// Peak measures the vector multiply-adds a second of one core, the yardstick
// of the vector kernels. It is 0 for Portable, which has no vectors.
func Peak(isa ISA) float64 {
	run := peakLoop(isa)
	if run == nil {
		return 0
	}
	const n = 200_000
	best := time.Duration(1 << 62)
	for range 10 {
		start := time.Now()
		run(n)
		best = min(best, time.Since(start))
	}
	return 16 * n / best.Seconds()
}
