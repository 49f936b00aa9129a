//go:build !unix

package cputime

import "time"

var began = time.Now()

// Seconds returns wall time, where processor time is not to be had.
func Seconds() float64 { return time.Since(began).Seconds() }
