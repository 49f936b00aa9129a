//go:build !amd64 && !arm64

package tile

func vectorISAs() []ISA { return nil }

// No instruction set but Portable is available here.
func assembly64(ISA) *Kernels[float64]   { panic("tile: no vector kernels") }
func assembly32(ISA) *Kernels[float32]   { panic("tile: no vector kernels") }
func assemblyForms(ISA) *FormKernels     { panic("tile: no vector kernels") }
func assemblyFactors(ISA) *FactorKernels { panic("tile: no vector kernels") }
func peakLoop(ISA) func(int)             { return nil }
