//go:build !faults

package shard

import "context"

// spoilTheta and spoilAnswer make a worker compute wrongly in programs that are built with the tag
// faults, for tests; yield makes a driver leave something to the members of its group. Here they do
// nothing.
func spoilTheta(theta []float64) []float64 { return theta }

func spoilAnswer(*Product, []float64) {}

func (r *run) yield(context.Context) {}

// spreadFrom is largeFactor, or what tests make of it.
func spreadFrom() int { return largeFactor }
