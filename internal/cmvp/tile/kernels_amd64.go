package tile

import "github.com/ulisse-gp/ulisse/internal/kernel"

//go:generate go run -C gen . -isa avx512 -out ../avx512_amd64.s -stubs ../avx512_amd64.go -pkg tile
//go:generate go run -C gen . -isa avx2 -out ../avx2_amd64.s -stubs ../avx2_amd64.go -pkg tile

func assembly64(isa ISA) *Kernels[float64] {
	return map[ISA]*Kernels[float64]{AVX2: &avx2KernelsF64, AVX512: &avx512KernelsF64}[isa]
}

func assembly32(isa ISA) *Kernels[float32] {
	return map[ISA]*Kernels[float32]{AVX2: &avx2KernelsF32, AVX512: &avx512KernelsF32}[isa]
}

func assemblyForms(isa ISA) *FormKernels {
	return map[ISA]*FormKernels{AVX2: &avx2Forms, AVX512: &avx512Forms}[isa]
}

func assemblyFactors(isa ISA) *FactorKernels {
	return map[ISA]*FactorKernels{AVX2: &avx2Factors, AVX512: &avx512Factors}[isa]
}

// peakLoop returns the loop of 16·n multiply-adds, or nil.
func peakLoop(isa ISA) func(n int) {
	return map[ISA]func(int){AVX2: avx2PeakF64, AVX512: avx512PeakF64}[isa]
}

// Indexed by family.
type (
	evals[T Real] = [kernel.NumFamilies]func(k, zi, zj []T, d, panels int)
	derivs        = [kernel.NumFamilies]func(k, h, zi, zj []float64, d, panels int)
)

var (
	avx512KernelsF64 = Kernels[float64]{
		Eval:   evals[float64]{avx512EvalRBFF64, avx512EvalMatern12F64, avx512EvalMatern32F64, avx512EvalMatern52F64},
		Direct: avx512DirectF64,
		Trans:  avx512TransF64,
		Add:    avx512AddF64,

		Multiply:  avx512MultiplyF64,
		AddScaled: avx512AddScaledF64,
	}
	avx512KernelsF32 = Kernels[float32]{
		Eval:   evals[float32]{avx512EvalRBFF32, avx512EvalMatern12F32, avx512EvalMatern32F32, avx512EvalMatern52F32},
		Direct: avx512DirectF32,
		Trans:  avx512TransF32,
		Add:    avx512AddF32,

		Multiply:  avx512MultiplyF32,
		AddScaled: avx512AddScaledF32,
	}
	avx512Factors = FactorKernels{Update: avx512UpdateF64, Solve: avx512SolveF64}
	avx512Forms   = FormKernels{
		Deriv:       derivs{avx512DerivRBFF64, avx512DerivMatern12F64, avx512DerivMatern32F64, avx512DerivMatern52F64},
		ScaledDeriv: derivs{avx512ScaledDerivRBFF64, avx512ScaledDerivMatern12F64, avx512ScaledDerivMatern32F64, avx512ScaledDerivMatern52F64},
		Sums:        avx512SumsF64,
		Weigh:       avx512WeighF64,
		Spread:      avx512SpreadF64,
	}
	avx2KernelsF64 = Kernels[float64]{
		Eval:   evals[float64]{avx2EvalRBFF64, avx2EvalMatern12F64, avx2EvalMatern32F64, avx2EvalMatern52F64},
		Direct: avx2DirectF64,
		Trans:  avx2TransF64,
		Add:    avx2AddF64,

		Multiply:  avx2MultiplyF64,
		AddScaled: avx2AddScaledF64,
	}
	avx2KernelsF32 = Kernels[float32]{
		Eval:   evals[float32]{avx2EvalRBFF32, avx2EvalMatern12F32, avx2EvalMatern32F32, avx2EvalMatern52F32},
		Direct: avx2DirectF32,
		Trans:  avx2TransF32,
		Add:    avx2AddF32,

		Multiply:  avx2MultiplyF32,
		AddScaled: avx2AddScaledF32,
	}
	avx2Factors = FactorKernels{Update: avx2UpdateF64, Solve: avx2SolveF64}
	avx2Forms   = FormKernels{
		Deriv:       derivs{avx2DerivRBFF64, avx2DerivMatern12F64, avx2DerivMatern32F64, avx2DerivMatern52F64},
		ScaledDeriv: derivs{avx2ScaledDerivRBFF64, avx2ScaledDerivMatern12F64, avx2ScaledDerivMatern32F64, avx2ScaledDerivMatern52F64},
		Sums:        avx2SumsF64,
		Weigh:       avx2WeighF64,
		Spread:      avx2SpreadF64,
	}
)
