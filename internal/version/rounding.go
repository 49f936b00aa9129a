package version

import (
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/cpu"
)

// Rounding names all but the instruction set of K's products that decides the bits of what
// this program computes: the architecture, how ordinary Go code and gonum round there, and
// Arithmetic, unless that is the first. Programs of one rounding compute the same bits of
// what is no product: metrics, steps, priors.
//
//	amd64          fused multiply-add in math.Exp, none in compiled code: what releases are
//	amd64-v3       compiled with GOAMD64=v3 or above: x*y + z may be fused
//	amd64-nofma    on a processor without fused multiply-add
//	arm64          x*y + z may be fused
//	…-noasm        built with a tag that leaves out gonum's assembly, which adds in another order
//	…/2            of Arithmetic 2
func Rounding() string {
	name := runtime.GOARCH
	if name == "amd64" {
		switch {
		case fuses(third, 3, -1):
			name += "-v3"
		case !cpu.X86.HasFMA || !cpu.X86.HasAVX:
			name += "-nofma"
		}
	}
	if slices.ContainsFunc(strings.Split(setting("-tags"), ","), func(tag string) bool { return tag == "noasm" || tag == "safe" }) {
		name += "-noasm"
	}
	if Arithmetic != "1" {
		name += "/" + Arithmetic
	}
	return name
}

var third = 1.0 / 3

// fuses reports whether the compiler fuses x*y + z: for a product that is not exact.
//
//go:noinline
func fuses(x, y, z float64) bool { return x*y+z != float64(x*y)+z }
