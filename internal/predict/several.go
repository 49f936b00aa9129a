package predict

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// telling returns the likelihood if it is of several latent functions, which are known together, and says what it tells of them; else nil.
func (p *Predictor) telling() likelihood.Telling {
	if _, ok := p.Functions.(Together); !ok {
		return nil
	}
	l, _ := p.Problem.Likelihood.(likelihood.Telling)
	return l
}

// inUnits returns a quantity in the units of the target.
func inUnits(q likelihood.Quantity, info *dataset.Info, v float64) float64 {
	if q.Shifted {
		return info.YScale.Undo(v)
	}
	return info.YScale.SD * v
}

// latents returns what is told of each of several latent functions at row i, nil of one function.
func (m *Moments) latents(info *dataset.Info, i int) (out []Term) {
	l, ok := m.likelihood.(likelihood.Telling)
	if !ok {
		return nil
	}
	for c, q := range l.Latents() {
		rows := len(m.Mean[0]) / l.Functions()
		var mean, variance []float64
		for t := range m.Mean {
			mean, variance = append(mean, m.Mean[t][c*rows+i]), append(variance, m.Var[t][c*rows+i])
		}
		centre, sd := q.Moments(c, l.Functions(), m.own, mean, variance)
		out = append(out, Term{q.Name, inUnits(q, info, centre), info.YScale.SD * sd})
	}
	return out
}

// severalPaths is Joint of several latent functions, of which there are paths alone. Path k is one of all functions, given one of their draws at the
// training rows.
func (p *Predictor) severalPaths(ctx context.Context, points *kernel.Inputs, o JointOptions) (*Joint, Stats, error) {
	l, functions := p.telling(), p.Functions.(Together)
	if o.Covariance {
		return nil, Stats{}, errSeveral
	}
	distinct, place := canonical(points)
	if most := min(MaxJointRows, jointBytes/(8*l.Functions()*len(p.Problem.Y))); distinct.Len() > most {
		return nil, Stats{}, &TooMany{distinct.Len(), most, len(p.Problem.Y)}
	}
	back, err := p.take(ctx)
	if err != nil {
		return nil, Stats{}, err
	}
	defer back()
	turns := random.Key{Seed: o.Seed}.Stream(random.Path, 0).Perm(len(p.Draws))
	out, stats := &Joint{Paths: make([][]float64, o.Paths)}, Stats{Draws: min(o.Paths, len(p.Draws)), Rows: len(place)}
	if o.Latent {
		out.Quantities = l.Latents()
	}
	for done, t := range turns[:stats.Draws] {
		o.Progress(Progress{RowsStage, done * len(place), stats.Draws * len(place)})
		at := &functionsAt{p: p, t: t, points: distinct, stats: &stats}
		err := functions.Joint(ctx, p.Draws[t], []*kernel.Inputs{distinct}, func(_ int, mean [][]float64, covariance []*mat.SymDense) error {
			if err := at.set(mean, covariance); err != nil {
				return err
			}
			for k := done; k < o.Paths; k += len(turns) {
				out.Paths[k] = at.path(l, o, k, place)
			}
			return nil
		})
		if err != nil {
			return nil, stats, err
		}
	}
	o.Progress(Progress{RowsStage, stats.Draws * len(place), stats.Draws * len(place)})
	return out, stats, nil
}

// functionsAt are several latent functions at points at a draw of ψ.
type functionsAt struct {
	p       *Predictor
	t       int
	points  *kernel.Inputs
	stats   *Stats
	mean    [][]float64     // of each draw of the functions at the training rows
	factors []*mat.Cholesky // of each function
}

// set takes means and covariances.
func (a *functionsAt) set(mean [][]float64, covariance []*mat.SymDense) error {
	a.mean, a.factors = mean, nil
	theta, _ := a.p.Problem.Natural(a.p.Draws[a.t])
	for c, k := range covariance {
		if !finite(k.RawSymmetric().Data) {
			return unsolvable(a.p.Draws[a.t])
		}
		if c > 0 && k == covariance[c-1] {
			a.factors = append(a.factors, a.factors[c-1])
			continue
		}
		chol, jitter := jittered(k, a.p.Problem.Part(c).Function(theta), a.points)
		if chol == nil {
			return fmt.Errorf("the joint covariance of the rows is not positive definite at log parameters %.4g: ask for rows that are farther apart", a.p.Draws[a.t])
		}
		a.stats.Jitter = max(a.stats.Jitter, jitter)
		a.factors = append(a.factors, chol)
	}
	return nil
}

// draw draws the functions, one after the other, given the draw of a number at the training rows.
func (a *functionsAt) draw(number int, normal func(z []float64)) []float64 {
	m := a.points.Len()
	f := slices.Clone(a.mean[number%len(a.mean)])
	z, moved := make([]float64, m), mat.NewVecDense(m, nil)
	for c, chol := range a.factors {
		normal(z)
		moved.MulVec(chol.RawU().T(), mat.NewVecDense(m, z))
		floats.Add(f[c*m:(c+1)*m], moved.RawVector().Data)
	}
	return f
}

// path returns path k, row by row: a target, or what is told of each latent function.
func (a *functionsAt) path(l likelihood.Telling, o JointOptions, k int, place []int) []float64 {
	r := random.Key{Seed: o.Seed, Iter: k + 1}.Stream(random.Path, 0)
	f := a.draw(k/len(a.p.Draws), func(z []float64) { random.Normal(r, z) })
	_, own := a.p.Problem.Natural(a.p.Draws[a.t])
	m, functions := a.points.Len(), l.Functions()
	at := func(point int) []float64 {
		row := make([]float64, functions)
		for c := range row {
			row[c] = f[c*m+point]
		}
		return row
	}
	if o.Latent {
		var out []float64
		for _, point := range place {
			for _, q := range l.Latents() {
				out = append(out, q.Of(own, at(point)))
			}
		}
		return out
	}
	out := make([]float64, len(place))
	for _, i := range inOrder(place) {
		out[i] = l.DrawAll(r, own, at(place[i]))
	}
	return out
}

// SeveralEffectRows is EffectRows of several latent functions, whose values at all rows are drawn together.
const SeveralEffectRows = 200

// effectSamples is how many draws an effect of several latent functions has at least.
const effectSamples = 1000

// severalEffects is Effects of several latent functions: for each point of the grid what is expected of a target there. That is no linear
// function of them, so that they are drawn at the rows, together, at each draw of ψ.
func (p *Predictor) severalEffects(ctx context.Context, info *dataset.Info, r EffectsRequest, o Options) ([]Effect, Stats, error) {
	l, functions := p.telling(), p.Functions.(Together)
	if r.Term > 0 {
		return nil, Stats{}, errTerms
	}
	if err := o.Check(); err != nil {
		return nil, Stats{}, err
	}
	back, err := p.take(ctx)
	if err != nil {
		return nil, Stats{}, err
	}
	defer back()
	var grid []*kernel.Inputs
	var weights [][]float64
	for i := range r.Grid {
		points, share := weighted(p.withInputs(info, &r, i))
		grid, weights = append(grid, points), append(weights, share)
	}
	of, stats := l.Expected(), Stats{Draws: len(p.Draws), Rows: len(r.Rows)}
	samples := make([][][]float64, len(grid)) // of each quantity
	for i := range samples {
		samples[i] = make([][]float64, len(of))
	}
	each := (effectSamples + len(p.Draws) - 1) / len(p.Draws)
	for t, psi := range p.Draws {
		_, own := p.Problem.Natural(psi)
		at := &functionsAt{p: p, t: t, stats: &stats}
		err := functions.Joint(ctx, psi, grid, func(i int, mean [][]float64, covariance []*mat.SymDense) error {
			o.Progress(Progress{RowsStage, t*len(grid) + i, len(p.Draws) * len(grid)})
			at.points = grid[i]
			if err := at.set(mean, covariance); err != nil {
				return err
			}
			stream := random.Key{Seed: p.Seed, Iter: t}.Stream(random.Averaged, i+1)
			for k := range each {
				f := at.draw(k, func(z []float64) { random.Normal(stream, z) })
				for c, v := range averaged(of, own, f, weights[i]) {
					samples[i][c] = append(samples[i][c], v)
				}
			}
			return nil
		})
		if err != nil {
			return nil, stats, err
		}
	}
	o.Progress(Progress{RowsStage, len(p.Draws) * len(grid), len(p.Draws) * len(grid)})
	return effectsOf(info, of, r, samples), stats, nil
}

// weighted returns the points that differ, and the share of the rows that each is.
func weighted(points *kernel.Inputs) (distinct *kernel.Inputs, share []float64) {
	distinct, place := canonical(points)
	share = make([]float64, distinct.Len())
	for _, at := range place {
		share[at] += 1 / float64(len(place))
	}
	return distinct, share
}

// averaged returns the averages of quantities over points, where the functions, one after the other, are f.
func averaged(of []likelihood.Quantity, own, f, weights []float64) []float64 {
	m := len(weights)
	out, at := make([]float64, len(of)), make([]float64, len(f)/m)
	for i, w := range weights {
		for c := range at {
			at[c] = f[c*m+i]
		}
		for k, q := range of {
			out[k] += w * q.Of(own, at)
		}
	}
	return out
}

// effectsOf returns the effects of samples, those of the first quantity first.
func effectsOf(info *dataset.Info, of []likelihood.Quantity, r EffectsRequest, samples [][][]float64) (out []Effect) {
	for c, q := range of {
		for i, at := range r.Grid {
			s := samples[i][c]
			slices.Sort(s)
			n := float64(len(s))
			mean, sd := floats.Sum(s)/n, 0.0
			for _, v := range s {
				sd += (v - mean) * (v - mean) / n
			}
			e := Effect{At: at, Of: q.Name, Mean: inUnits(q, info, mean), SD: info.YScale.SD * math.Sqrt(sd)}
			for _, prob := range r.Probs {
				e.Quantiles = append(e.Quantiles, inUnits(q, info, stat.Quantile(prob, stat.LinInterp, s, nil)))
			}
			out = append(out, e)
		}
	}
	return out
}
