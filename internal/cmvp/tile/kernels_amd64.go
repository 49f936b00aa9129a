package tile

import "github.com/ulisse-gp/ulisse/internal/kernel"

//go:generate go run -C gen . -isa avx512 -out ../avx512_amd64.s -stubs ../avx512_amd64.go -pkg tile
//go:generate go run -C gen . -isa avx2 -out ../avx2_amd64.s -stubs ../avx2_amd64.go -pkg tile
//go:generate go run -C gen . -isa neon -out ../neon_arm64.s -stubs ../neon_arm64.go -pkg tile

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

var (
	avx512KernelsF64 = Kernels[float64]{
		Eval: evals[float64]{
			kernel.RBF: avx512EvalRBFF64, kernel.Matern12: avx512EvalMatern12F64, kernel.Matern32: avx512EvalMatern32F64, kernel.Matern52: avx512EvalMatern52F64,
			kernel.Rational: avx512EvalRationalF64, kernel.Wendland: avx512EvalWendlandF64, kernel.Circular: avx512EvalCircularF64, kernel.Mismatch: avx512EvalMismatchF64,
			kernel.Wendland0: avx512EvalWendland0F64, kernel.Wendland2: avx512EvalWendland2F64,
		},
		Direct: avx512DirectF64,
		Trans:  avx512TransF64,
		Add:    avx512AddF64,

		Multiply:  avx512MultiplyF64,
		AddScaled: avx512AddScaledF64,
	}
	avx512KernelsF32 = Kernels[float32]{
		Eval: evals[float32]{
			kernel.RBF: avx512EvalRBFF32, kernel.Matern12: avx512EvalMatern12F32, kernel.Matern32: avx512EvalMatern32F32, kernel.Matern52: avx512EvalMatern52F32,
			kernel.Rational: avx512EvalRationalF32, kernel.Wendland: avx512EvalWendlandF32, kernel.Circular: avx512EvalCircularF32, kernel.Mismatch: avx512EvalMismatchF32,
			kernel.Wendland0: avx512EvalWendland0F32, kernel.Wendland2: avx512EvalWendland2F32,
		},
		Direct: avx512DirectF32,
		Trans:  avx512TransF32,
		Add:    avx512AddF32,

		Multiply:  avx512MultiplyF32,
		AddScaled: avx512AddScaledF32,
	}
	avx512Factors = FactorKernels{Update: avx512UpdateF64, Solve: avx512SolveF64}
	avx512Forms   = FormKernels{
		Deriv: derivs{
			kernel.RBF: avx512DerivRBFF64, kernel.Matern12: avx512DerivMatern12F64, kernel.Matern32: avx512DerivMatern32F64, kernel.Matern52: avx512DerivMatern52F64,
			kernel.Rational: avx512DerivRationalF64, kernel.Wendland: avx512DerivWendlandF64, kernel.Circular: avx512DerivCircularF64,
			kernel.Wendland0: avx512DerivWendland0F64, kernel.Wendland2: avx512DerivWendland2F64,
		},
		ScaledDeriv: derivs{
			kernel.RBF: avx512ScaledDerivRBFF64, kernel.Matern12: avx512ScaledDerivMatern12F64, kernel.Matern32: avx512ScaledDerivMatern32F64, kernel.Matern52: avx512ScaledDerivMatern52F64,
			kernel.Rational: avx512ScaledDerivRationalF64, kernel.Wendland: avx512ScaledDerivWendlandF64,
			kernel.Wendland0: avx512ScaledDerivWendland0F64, kernel.Wendland2: avx512ScaledDerivWendland2F64,
		},
		ShapeDeriv: derivs{kernel.Rational: avx512ShapeDerivRationalF64, kernel.Mismatch: avx512ShapeDerivMismatchF64},
		Sums:       avx512SumsF64,
		Weigh:      avx512WeighF64,
		Spread:     avx512SpreadF64,
	}
	avx2KernelsF64 = Kernels[float64]{
		Eval: evals[float64]{
			kernel.RBF: avx2EvalRBFF64, kernel.Matern12: avx2EvalMatern12F64, kernel.Matern32: avx2EvalMatern32F64, kernel.Matern52: avx2EvalMatern52F64,
			kernel.Rational: avx2EvalRationalF64, kernel.Wendland: avx2EvalWendlandF64, kernel.Circular: avx2EvalCircularF64, kernel.Mismatch: avx2EvalMismatchF64,
			kernel.Wendland0: avx2EvalWendland0F64, kernel.Wendland2: avx2EvalWendland2F64,
		},
		Direct: avx2DirectF64,
		Trans:  avx2TransF64,
		Add:    avx2AddF64,

		Multiply:  avx2MultiplyF64,
		AddScaled: avx2AddScaledF64,
	}
	avx2KernelsF32 = Kernels[float32]{
		Eval: evals[float32]{
			kernel.RBF: avx2EvalRBFF32, kernel.Matern12: avx2EvalMatern12F32, kernel.Matern32: avx2EvalMatern32F32, kernel.Matern52: avx2EvalMatern52F32,
			kernel.Rational: avx2EvalRationalF32, kernel.Wendland: avx2EvalWendlandF32, kernel.Circular: avx2EvalCircularF32, kernel.Mismatch: avx2EvalMismatchF32,
			kernel.Wendland0: avx2EvalWendland0F32, kernel.Wendland2: avx2EvalWendland2F32,
		},
		Direct: avx2DirectF32,
		Trans:  avx2TransF32,
		Add:    avx2AddF32,

		Multiply:  avx2MultiplyF32,
		AddScaled: avx2AddScaledF32,
	}
	avx2Factors = FactorKernels{Update: avx2UpdateF64, Solve: avx2SolveF64}
	avx2Forms   = FormKernels{
		Deriv: derivs{
			kernel.RBF: avx2DerivRBFF64, kernel.Matern12: avx2DerivMatern12F64, kernel.Matern32: avx2DerivMatern32F64, kernel.Matern52: avx2DerivMatern52F64,
			kernel.Rational: avx2DerivRationalF64, kernel.Wendland: avx2DerivWendlandF64, kernel.Circular: avx2DerivCircularF64,
			kernel.Wendland0: avx2DerivWendland0F64, kernel.Wendland2: avx2DerivWendland2F64,
		},
		ScaledDeriv: derivs{
			kernel.RBF: avx2ScaledDerivRBFF64, kernel.Matern12: avx2ScaledDerivMatern12F64, kernel.Matern32: avx2ScaledDerivMatern32F64, kernel.Matern52: avx2ScaledDerivMatern52F64,
			kernel.Rational: avx2ScaledDerivRationalF64, kernel.Wendland: avx2ScaledDerivWendlandF64,
			kernel.Wendland0: avx2ScaledDerivWendland0F64, kernel.Wendland2: avx2ScaledDerivWendland2F64,
		},
		ShapeDeriv: derivs{kernel.Rational: avx2ShapeDerivRationalF64, kernel.Mismatch: avx2ShapeDerivMismatchF64},
		Sums:       avx2SumsF64,
		Weigh:      avx2WeighF64,
		Spread:     avx2SpreadF64,
	}
)
