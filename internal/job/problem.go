package job

import (
	"context"
	"fmt"
	"io"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/solve"
)

// Table reads or generates the specification's data as they are before anything is held out or
// standardised. A table that is not nil is read in place of the file that data.path names. label, if
// not empty, names a column of a table that is read as text beside the numbers.
func (s *Spec) Table(table io.Reader, label string, budget *parallel.Budget) (*dataset.Table, error) {
	d := &s.Data
	if len(d.Points) > 0 {
		return d.binned(table, label)
	}
	if d.Synthetic == nil {
		sel, err := d.selection()
		if err != nil {
			return nil, err
		}
		sel.Label, sel.Noise, sel.Offset, sel.TwoClasses = label, s.NoiseColumns(), d.Offset, likelihood.OfClasses(s.Model.Conditional())
		sel.Ordered, sel.Unordered = likelihood.OfOrder(s.Model.Conditional()), likelihood.OfCategories(s.Model.Conditional())
		if sel.Ordered || sel.Unordered {
			sel.Classes = d.Levels[d.Target]
		}
		sel.Trials = d.Trials != ""
		return dataset.ReadFile(d.Path, table, sel, dataset.DefaultLimits)
	}
	syn, err := s.synthetic()
	if err != nil {
		return nil, err
	}
	t, err := syn.Generate(budget)
	if err == nil && d.Rows > 0 && d.Rows < len(t.Y) {
		for k := range t.X {
			t.X[k] = t.X[k][:d.Rows]
		}
		t.Y = t.Y[:d.Rows]
	}
	return t, err
}

// selection returns what is read of a table.
func (d *Data) selection() (dataset.Select, error) {
	sel := dataset.Select{Target: d.Target, Inputs: d.Inputs, Exclude: d.Exclude, Rows: d.Rows, Categories: d.Categories, Levels: d.Levels,
		Dates: map[string]dataset.Date{}, DropConstant: d.Constant == "drop"}
	if d.Missing != "error" {
		sel.Missing = dataset.Missing(d.Missing)
	}
	for name, text := range d.Dates {
		date, err := dataset.ParseDate(text)
		if err != nil {
			return sel, &FieldError{Path: "data.dates." + name, Msg: err.Error()}
		}
		sel.Dates[name] = date
	}
	return sel, nil
}

// Dataset holds rows of the specification's table out and standardises the others.
func (s *Spec) Dataset(t *dataset.Table) (*dataset.Dataset, error) {
	d := &s.Data
	return dataset.New(t, dataset.Options{Standardize: d.Standardize, RawTarget: !s.Model.Conditional().Standardized(), Transform: d.transform(), Holdout: d.Holdout, Subset: s.Model.Subset(), Seed: s.Seed,
		Unordered: likelihood.OfCategories(s.Model.Conditional()), Impute: dataset.Missing(d.Missing) == dataset.MissingImpute, DropConstant: d.Constant == "drop"})
}

// Load returns the specification's Dataset of its Table.
func (s *Spec) Load(ctx context.Context, table io.Reader, budget *parallel.Budget) (*dataset.Dataset, error) {
	t, err := s.Table(table, "", budget)
	if err != nil {
		return nil, err
	}
	ds, err := s.Dataset(t)
	if err != nil {
		return nil, err
	}
	if s.Data.Synthetic != nil {
		syn, err := s.synthetic()
		if err != nil {
			return nil, err
		}
		truth := dataset.Standardized(syn.Truth, ds, !s.Model.ARD)
		ds.Truth = &truth
	}
	return ds, ctx.Err()
}

func (s *Spec) synthetic() (dataset.Synthetic, error) {
	g := s.Data.Synthetic
	f, err := kernel.ParseFamily(s.Model.Kernel)
	if err != nil {
		return dataset.Synthetic{}, err
	}
	return dataset.Synthetic{N: g.N, D: g.D, Family: f, Seed: g.Seed,
		Truth: dataset.Truth{Sigma: g.Sigma, Tau: g.Tau, Lambda: g.Lambda}}, nil
}

// Problem returns the posterior that the specification asks for on a data set.
func (s *Spec) Problem(d *dataset.Dataset) (*posterior.Problem, error) {
	most := maxDense
	if s.Needs().Estimated {
		most = sampler.PseudoMarginalRows
	}
	if s.Needs().Dense && d.N() > most {
		return nil, &FieldError{Path: "sampler.method", Msg: fmt.Sprintf("%s stores the %d×%d covariance matrix: at most %d rows", s.Sampler.Method, d.N(), d.N(), most)}
	}
	if f := likelihood.Functions(s.likelihood(&d.Info)); f > 1 && f*d.N() > maxDense && !s.Model.Features() {
		return nil, &FieldError{Path: "data.rows", Msg: fmt.Sprintf("%s stores matrices over the %d latent functions at all rows, of which there are %d: at most %d values, so %d rows; learn from fewer (data.rows), or from a subset (model.approximation: {kind: subset}), or of classes by random features (kind: random-features)",
			s.Sampler.Method, f, d.N(), maxDense, maxDense/f)}
	}
	if s.Solver.Preconditioner.Kind == "ski" && d.D() > precond.MaxGridDim {
		return nil, &FieldError{Path: "solver.preconditioner.kind", Msg: fmt.Sprintf("ski interpolates on a grid: it is for %d inputs at most, not %d", precond.MaxGridDim, d.D())}
	}
	m, err := s.KernelModel(&d.Info)
	if err != nil {
		return nil, err
	}
	if err := insideWarps(m.Covariance, d); err != nil {
		return nil, err
	}
	if l, ok := m.Likelihood.(likelihood.ByRow); ok {
		m.Likelihood = l.Of(d.RowNoise)
	}
	if err := m.Likelihood.Check(d.Y); err != nil {
		return nil, &FieldError{Path: "data.target", Msg: err.Error()}
	}
	in, err := s.arranged(d.X, m.Covariance)
	if err != nil {
		return nil, err
	}
	p := posterior.NewProblem(m, in, d.Y)
	for k := range d.D() {
		if d.LevelsOf(k) != nil {
			p.Levels = append(p.Levels, make([]bool, d.D()-len(p.Levels))...)
			p.Levels[k] = true
		}
	}
	if !d.Shifted {
		p.Offset = d.RowOffset
	}
	return p, nil
}

// Where sparsity is auto, rows are arranged in space from SparseRows on, 64 tiles, and by at most SparseInputs inputs: fewer tiles, or
// boxes in more dimensions, are hardly ever far from each other in units of length-scales that the data can tell.
const (
	SparseRows   = 64 * cmvp.TileRows
	SparseInputs = 3
)

// arranged returns the inputs, arranged in space if the specification wants pairs of rows passed over that are nothing.
func (s *Spec) arranged(in *kernel.Inputs, c *kernel.Covariance) (*kernel.Inputs, error) {
	over, everywhere := c.Local()
	switch s.Solver.Sparsity {
	case "on":
		if !everywhere {
			return nil, &FieldError{Path: "solver.sparsity", Msg: "a term of the covariance does not come to nothing with distance, so that no pair of rows could be passed over: use auto, or multiply each term by an rbf, a matern or a wendland"}
		}
	case "auto":
		if !everywhere || in.Len() < SparseRows || len(over) > SparseInputs {
			return in, nil
		}
	default:
		return in, nil
	}
	return cmvp.Arrange(in, over), nil
}

// insideWarps returns an error if a row is outside of the range of a warp, where all rows would be at one point.
func insideWarps(c *kernel.Covariance, d *dataset.Dataset) error {
	for _, leaf := range c.Leaves() {
		l, ok := leaf.(*kernel.Warped)
		if !ok {
			continue
		}
		for _, w := range l.Warps {
			if count, one := w.Outside(d.X); count > 0 {
				name, s := d.InputNames[w.Input], d.XScale[w.Input]
				user := func(x float64) float64 { return s.Mean + s.SD*x }
				return &FieldError{Path: "model.kernel", Msg: fmt.Sprintf("%d of %d rows have %s outside of its warp from %.6g to %.6g, such as %.6g: give a range that all rows are in",
					count, d.N(), name, user(w.Lo), user(w.Hi), user(one))}
			}
		}
	}
	return nil
}

// Mixed reports whether solves are in mixed precision. It is the faster at every
// size that was measured (docs/benchmarks.md); only solutions that are stopped
// early, which are not verified, need float64.
func (s *Solver) Mixed(early bool) bool {
	return s.Precision == "mixed" || s.Precision == "auto" && !early
}

// autoTail is where the tail begins, and minProb the least probability of a step,
// of the stopping law that needs no constants.
const (
	autoTail = 0.1
	minProb  = 0.1
)

// StoppingLaw returns the stopping law of ULISSE.
func (s *Solver) StoppingLaw() solve.Law {
	switch law := s.Law; {
	case s.Method == "auto", law == "optimal":
		return solve.OptimalLaw{MinProb: minProb}
	case law == "geometric":
		return solve.GeometricLaw{P: s.Beta}
	case law == "decay":
		return solve.DecayLaw{MinProb: 0.3, MaxProb: 0.99}
	}
	return solve.PaperLaw{Beta: s.Beta}
}

// TailStart returns the q of ULISSE.
func (s *Solver) TailStart() float64 {
	if s.Method == "auto" {
		return autoTail
	}
	return s.Q
}
