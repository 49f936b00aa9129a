//go:build !faults

package shard

// spoilTheta and spoilAnswer make a worker compute wrongly in programs that are built with the tag
// faults, for tests. Here they do nothing.
func spoilTheta(theta []float64) []float64 { return theta }

func spoilAnswer(*Product, []float64) {}
