package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/ulisse-gp/ulisse/internal/accuracy"
	"github.com/ulisse-gp/ulisse/internal/maxima"
	"github.com/ulisse-gp/ulisse/internal/metropolis"
	"github.com/ulisse-gp/ulisse/internal/mixture"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/surrogate"
)

// learned draws from the posterior with log|K| learned from gradients with noise, and
// yᵀK⁻¹y exact: what a sampler does that has no factors.
type learned struct {
	*exact
	o        options
	ofLogDet *surrogate.Reduction
	ofQuad   *surrogate.Reduction
	white    *surrogate.Whitening
	root     *mat.TriDense // of the covariance of a gradient's noise of unit size

	points       [][]float64 // reduced parameters of the gradients
	logDets      []surrogate.Observation
	quads        []surrogate.Observation
	logDet, quad surrogate.Model // of log|K|, and of log yᵀK⁻¹y for the proposals
	guard        *surrogate.Guard
}

// learn draws by a learned log|K| and compares with the reference in a file.
func learn(ctx context.Context, e *exact, peaks []*maxima.Maximum, o options) error {
	ref, err := readSummary(o.against)
	if err != nil {
		return err
	}
	first, err := laplace(peaks)
	if err != nil {
		return err
	}
	p := e.problem.Model.NumParams()
	l := &learned{exact: e, o: o,
		ofLogDet: surrogate.ScaleFree(p, []int{0}, p-1, float64(len(e.problem.Y))),
		ofQuad:   surrogate.ScaleFree(p, []int{0}, p-1, -1),
	}
	began := time.Now()
	// Two rounds of gradients: where the peaks say that the posterior is, then where the first
	// model says so.
	draws := metropolis.Propose(first, o.learn/2, o.stream(random.Probe, 0)).X
	var adapted *metropolis.Adapted
	for round := range 2 {
		if err := l.observe(ctx, draws, round); err != nil {
			return err
		}
		if err := l.fit(ctx); err != nil {
			return err
		}
		if adapted, err = l.adapt(ctx, first, round); err != nil {
			return err
		}
		draws = resample(adapted.Weighted, o.learn-o.learn/2, o.stream(random.Probe, 2)(0))
	}
	log.Printf("%d gradients, fits and proposals: %.0f s; yᵀK⁻¹y: %s", len(l.points), time.Since(began).Seconds(), l.quad.Name())
	began = time.Now()
	list := metropolis.Propose(adapted.Proposal, o.draws, o.stream(random.Accept, sampling))
	worst, err := l.evaluateQuad(ctx, list)
	if err != nil {
		return err
	}
	log.Printf("%d exact yᵀK⁻¹y in %.0f s; log|K| is off by %.3f nats (rms over the draws)", o.draws, time.Since(began).Seconds(), worst)
	return l.report(list, ref)
}

// resample returns draws of equal weight from weighted ones (systematic resampling).
func resample(w *metropolis.Weighted, count int, r *rand.Rand) [][]float64 {
	out := make([][]float64, 0, count)
	sum, at := 0.0, -1
	for i := range count {
		for u := (float64(i) + r.Float64()) / float64(count); sum < u && at < len(w.W)-1; {
			at++
			sum += w.W[at]
		}
		out = append(out, w.X[at])
	}
	return out
}

// observe adds gradients at points to what is known.
func (l *learned) observe(ctx context.Context, points [][]float64, round int) error {
	if err := l.whiten(points, round == 0); err != nil {
		return err
	}
	values := make([]*posterior.Evidence, len(points))
	l.each(len(points), func(w *worker, i int) { values[i] = w.evidence(ctx, points[i], true) })
	for i, v := range values {
		if v == nil {
			continue // numerically singular
		}
		psi := points[i]
		x := l.ofLogDet.Point(psi)
		l.points = append(l.points, x)
		l.logDets = append(l.logDets, l.noisy(x, l.ofLogDet.Gradient(v.LogDetGrad), l.o.stream(random.Probe, 10+round)(i)))
		grad := make([]float64, len(psi))
		floats.AddScaled(grad, 1/v.Quad, v.QuadGrad)
		l.quads = append(l.quads, surrogate.Observation{X: x, Grad: l.ofQuad.Gradient(grad),
			HasValue: true, Value: l.ofQuad.Value(psi, math.Log(v.Quad))})
	}
	return ctx.Err()
}

// whiten sets the whitening from draws, and, if they are the first, the noise of unit size:
// in every direction as large as the uncertainty of the posterior.
func (l *learned) whiten(draws [][]float64, noise bool) error {
	q := len(l.ofLogDet.Point(draws[0]))
	x := mat.NewDense(len(draws), q, nil)
	for i, psi := range draws {
		x.SetRow(i, l.ofLogDet.Point(psi))
	}
	mean, cov := make([]float64, q), mat.NewSymDense(q, nil)
	for k := range mean {
		mean[k] = stat.Mean(mat.Col(nil, k, x), nil)
	}
	stat.CovarianceMatrix(cov, x, nil)
	var err error
	if l.white, err = surrogate.NewWhitening(mean, cov); err != nil || !noise {
		return err
	}
	var chol mat.Cholesky
	chol.Factorize(cov)
	var inv mat.SymDense
	if err := chol.InverseTo(&inv); err != nil {
		return err
	}
	chol.Factorize(&inv)
	l.root = mat.NewTriDense(q, mat.Lower, nil)
	chol.LTo(l.root)
	return nil
}

func (l *learned) noisy(x, grad []float64, r *rand.Rand) surrogate.Observation {
	o := surrogate.Observation{X: x, Grad: grad}
	if l.o.noise == 0 {
		return o
	}
	q := len(x)
	z, e := mat.NewVecDense(q, nil), mat.NewVecDense(q, nil)
	for k := range q {
		z.SetVec(k, l.o.noise*r.NormFloat64())
	}
	e.MulVec(l.root, z)
	floats.Add(o.Grad, e.RawVector().Data)
	o.GradCov = mat.NewSymDense(q, nil)
	o.GradCov.SymOuterK(l.o.noise*l.o.noise, l.root)
	return o
}

func (l *learned) fit(ctx context.Context) error {
	quad, err := surrogate.FitProcess(ctx, l.white, l.quads, surrogate.Gaussian, 2, l.budget)
	if err != nil {
		return err
	}
	logDet, tried, err := surrogate.Choose(ctx, l.white, l.logDets, l.budget)
	for _, c := range tried {
		log.Printf("%s: %.3f nats a held-out gradient", c.Name, c.Score)
	}
	if err != nil {
		return err
	}
	log.Printf("chosen: %s", logDet.Name())
	l.quad, l.logDet = l.ofQuad.Lift(quad), l.ofLogDet.Lift(logDet)
	l.guard = surrogate.NewGuard(l.white, l.points)
	return nil
}

// adapt finds proposals by the models alone, which are not believed far from the gradients.
func (l *learned) adapt(ctx context.Context, first *mixture.Mixture, round int) (*metropolis.Adapted, error) {
	a := l.adaptation(l.o, 100*(1+round), first)
	a.Evaluate = func(ctx context.Context, p *metropolis.Proposals) error {
		l.budget.NewLoop(func(_, i int) {
			psi := p.X[i]
			prior, _ := l.problem.LogPrior(psi)
			p.Target[i] = prior - (math.Exp(l.quad.Value(psi))+l.logDet.Value(psi))/2 - l.guard.Penalty(l.ofLogDet.Point(psi))
		}).Run(len(p.X))
		return ctx.Err()
	}
	start, err := l.defend(first, l.o)
	if err != nil {
		return nil, err
	}
	out, err := a.Run(ctx, start, l.budget)
	if err == nil {
		log.Printf("%d draws of the models count as %.0f, k-hat %.2f; %d components", len(out.All.X), out.Weighted.ESS, out.Weighted.KHat, out.Fit.Len())
	}
	return out, err
}

// evaluateQuad computes the targets of proposals, yᵀK⁻¹y exactly and log|K| by the model, and
// returns the root mean square of the model's error, its level aside, over the posterior.
func (l *learned) evaluateQuad(ctx context.Context, p *metropolis.Proposals) (float64, error) {
	off := make([]float64, len(p.X))
	l.each(len(p.X), func(w *worker, i int) {
		psi := p.X[i]
		p.Target[i] = math.Inf(-1)
		if v := w.evidence(ctx, psi, false); v != nil {
			prior, _ := l.problem.LogPrior(psi)
			logDet := l.logDet.Value(psi)
			p.Target[i] = prior - (v.Quad+logDet)/2
			off[i] = logDet - v.LogDet
		}
	})
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	w, err := metropolis.Weigh(p)
	if err != nil {
		return 0, err
	}
	_, variance := stat.PopMeanVariance(off, w.W)
	return math.Sqrt(variance), nil
}

// report prints the differences from the reference beside the stated errors.
func (l *learned) report(list *metropolis.Proposals, ref *Summary) error {
	draws, rate, _, err := scan(list, l.o)
	if err != nil {
		return err
	}
	var estimates []accuracy.Estimate
	for i := range ref.Parameters {
		d := accuracy.Draws{X: column(draws, i)}
		estimates = append(estimates, d.Mean(), d.SD())
	}
	density := accuracy.Density(l.logDet, -0.5, draws, estimates)
	fmt.Printf("acceptance %.2f\n\n", rate)
	fmt.Println("| parameter | shift of the mean, sd | stated error | sd, ratio − 1 | stated error |")
	fmt.Println("|---|---|---|---|---|")
	var square float64
	for i, p := range ref.Parameters {
		mean, sd := estimates[2*i], estimates[2*i+1]
		of := func(e accuracy.Estimate, density float64, r Number) (difference, stated float64) {
			errs := accuracy.Errors{MonteCarlo: e.MonteCarlo(), Density: density}
			difference, stated = e.Value-r.Value, errs.Total()
			square += difference * difference / (stated*stated + r.Error*r.Error)
			return difference / p.SD.Value, stated / p.SD.Value
		}
		shift, shiftError := of(mean, density[2*i], p.Mean)
		ratio, ratioError := of(sd, density[2*i+1], p.SD)
		fmt.Printf("| %s | %+.4f | %.4f | %+.4f | %.4f |\n", p.Name, shift, shiftError, ratio, ratioError)
	}
	fmt.Printf("\nroot mean square of difference over stated error: %.2f\n", math.Sqrt(square/float64(2*len(ref.Parameters))))
	return nil
}
