package predict

import (
	"fmt"

	"gonum.org/v1/gonum/mat"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/param"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// PriorDraws returns draws of ψ from the prior.
func PriorDraws(params param.List, count int, seed uint64) [][]float64 {
	out := make([][]float64, count)
	for j := range out {
		r := random.Key{Seed: seed, Iter: j + 1}.Stream(random.Prior, 0)
		for _, p := range params {
			out[j] = append(out[j], p.Prior.Sample(r))
		}
	}
	return out
}

// PriorFunctions returns what latent functions are like before anything is learnt, along one input: one
// at each of the draws of ψ, on a grid of the input's values in original units, all other inputs being at
// typical values, in the units of the target. Terms of fixed variance are left out: they are those of a mean, whose
// prior is wide.
func PriorFunctions(c *kernel.Covariance, data *dataset.Dataset, input int, grid []float64, draws [][]float64, params param.List, seed uint64) ([][]float64, error) {
	d, m := data.D(), len(grid)
	points := make([]float64, m*d)
	for i, v := range grid {
		for k := range d {
			points[i*d+k] = data.X.Centre(k)
		}
		points[i*d+input] = data.XScale[input].Apply(v)
	}
	in := kernel.NewInputs(m, d, points)
	out := make([][]float64, len(draws))
	free, at := c.Free()
	if free == nil {
		return nil, fmt.Errorf("the covariance %v has no parameters", c)
	}
	for j, psi := range draws {
		theta, own := params.Natural(psi), make([]float64, len(at))
		for i, k := range at {
			own[i] = theta[k]
		}
		f := free.At(own)
		factor, err := priorFactor(f, in)
		if err != nil {
			return nil, err
		}
		z := make([]float64, m)
		random.Normal(random.Key{Seed: seed, Chain: input + 1, Iter: j + 1}.Stream(random.Prior, 0), z)
		y := mat.NewVecDense(m, nil)
		y.MulVec(factor.RawU().T(), mat.NewVecDense(m, z))
		out[j] = y.RawVector().Data
		for i, v := range out[j] {
			out[j][i] = data.Undo(v)
		}
	}
	return out, nil
}

// priorFactor returns a Cholesky factor of the covariance of the latent function at some points.
func priorFactor(f *kernel.Function, in *kernel.Inputs) (*mat.Cholesky, error) {
	k := mat.NewSymDense(in.Len(), nil)
	for i := range in.Len() {
		for j := range i + 1 {
			k.SetSym(i, j, f.Value(in.Row(i), in.Row(j)))
		}
	}
	factor, _ := jittered(k, f, in)
	if factor == nil {
		return nil, fmt.Errorf("a covariance that was drawn from the prior has no Cholesky factor: %v at %.3g", f.Covariance(), f.Theta())
	}
	return factor, nil
}
