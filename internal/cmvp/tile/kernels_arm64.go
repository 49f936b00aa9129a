package tile

import "github.com/ulisse-gp/ulisse/internal/kernel"

func assembly64(ISA) *Kernels[float64]   { return &neonKernelsF64 }
func assembly32(ISA) *Kernels[float32]   { return &neonKernelsF32 }
func assemblyForms(ISA) *FormKernels     { return &neonForms }
func assemblyFactors(ISA) *FactorKernels { return &neonFactors }

// peakLoop returns the loop of 16·n multiply-adds, or nil.
func peakLoop(isa ISA) func(n int) {
	if isa == Portable {
		return nil
	}
	return neonPeakF64
}

var (
	neonKernelsF64 = Kernels[float64]{
		Eval: evals[float64]{
			kernel.RBF: neonEvalRBFF64, kernel.Matern12: neonEvalMatern12F64, kernel.Matern32: neonEvalMatern32F64, kernel.Matern52: neonEvalMatern52F64,
			kernel.Rational: neonEvalRationalF64, kernel.Wendland: neonEvalWendlandF64, kernel.Circular: neonEvalCircularF64, kernel.Mismatch: neonEvalMismatchF64,
			kernel.Wendland0: neonEvalWendland0F64, kernel.Wendland2: neonEvalWendland2F64,
		},
		Direct: neonDirectF64,
		Trans:  neonTransF64,
		Add:    neonAddF64,

		Multiply:  neonMultiplyF64,
		AddScaled: neonAddScaledF64,
	}
	neonKernelsF32 = Kernels[float32]{
		Eval: evals[float32]{
			kernel.RBF: neonEvalRBFF32, kernel.Matern12: neonEvalMatern12F32, kernel.Matern32: neonEvalMatern32F32, kernel.Matern52: neonEvalMatern52F32,
			kernel.Rational: neonEvalRationalF32, kernel.Wendland: neonEvalWendlandF32, kernel.Circular: neonEvalCircularF32, kernel.Mismatch: neonEvalMismatchF32,
			kernel.Wendland0: neonEvalWendland0F32, kernel.Wendland2: neonEvalWendland2F32,
		},
		Direct: neonDirectF32,
		Trans:  neonTransF32,
		Add:    neonAddF32,

		Multiply:  neonMultiplyF32,
		AddScaled: neonAddScaledF32,
	}
	neonFactors = FactorKernels{Update: neonUpdateF64, Solve: neonSolveF64}
	neonForms   = FormKernels{
		Deriv: derivs{
			kernel.RBF: neonDerivRBFF64, kernel.Matern12: neonDerivMatern12F64, kernel.Matern32: neonDerivMatern32F64, kernel.Matern52: neonDerivMatern52F64,
			kernel.Rational: neonDerivRationalF64, kernel.Wendland: neonDerivWendlandF64, kernel.Circular: neonDerivCircularF64,
			kernel.Wendland0: neonDerivWendland0F64, kernel.Wendland2: neonDerivWendland2F64,
		},
		ScaledDeriv: derivs{
			kernel.RBF: neonScaledDerivRBFF64, kernel.Matern12: neonScaledDerivMatern12F64, kernel.Matern32: neonScaledDerivMatern32F64, kernel.Matern52: neonScaledDerivMatern52F64,
			kernel.Rational: neonScaledDerivRationalF64, kernel.Wendland: neonScaledDerivWendlandF64,
			kernel.Wendland0: neonScaledDerivWendland0F64, kernel.Wendland2: neonScaledDerivWendland2F64,
		},
		ShapeDeriv: derivs{kernel.Rational: neonShapeDerivRationalF64, kernel.Mismatch: neonShapeDerivMismatchF64},
		Sums:       neonSumsF64,
		Weigh:      neonWeighF64,
		Spread:     neonSpreadF64,
	}
)
