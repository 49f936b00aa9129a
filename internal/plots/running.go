package plots

import (
	"io"
	"math"

	"gonum.org/v1/plot/vg"

	"github.com/ulisse-gp/ulisse/internal/diagnostics"
)

// runningPoints is the number of draws at which running diagnostics are taken,
// and runningDraws bounds the draws that each is taken from: of more, evenly
// spaced ones are, which changes R-hat little.
const (
	runningPoints = 60
	runningDraws  = 8192
)

// RunningRHat draws R-hat and the PSRF with its 97.5 % bound of every parameter
// against the number of draws, with the threshold that counts as converged:
// Figure 5 of Filippone and Engler (2015).
func RunningRHat(w io.Writer, d Draws, threshold float64, opts ...Option) error {
	f := newFigure("Running R-hat", d.say("R-hat and the potential scale reduction factor with its upper bound, which should fall to 1"), opts)
	for i, name := range d.Names {
		p := newPlot("", "draws of each chain", "R-hat, "+name)
		at, rhat, psrf, upper := running(d.X[i])
		for k := range at {
			at[k] = float64(d.First) + at[k]*float64(max(1, d.Every))
		}
		for k, s := range []struct {
			name string
			y    []float64
		}{{"R-hat", rhat}, {"PSRF", psrf}, {"PSRF, 97.5 % bound", upper}} {
			if err := f.line(p, at, s.y, stroke{name: s.name, colour: colour(k), width: vg.Points(1.1), dashed: k == 2}); err != nil {
				return err
			}
		}
		if err := f.level(p, at, threshold, "converged below"); err != nil {
			return err
		}
		p.Y.Min = 0.99
		p.Y.Max = min(max(p.Y.Max, 1.05), 2)
		f.add(p)
	}
	return f.write(w)
}

// running returns the diagnostics of the first t draws at some tens of t.
func running(chains [][]float64) (at, rhat, psrf, upper []float64) {
	if len(chains) == 0 {
		return nil, nil, nil, nil
	}
	n := len(chains[0])
	step := max(1, n/runningPoints)
	for t := max(8, step); t <= n; t += step {
		first := make([][]float64, len(chains))
		every := 1 + (t*len(chains)-1)/runningDraws
		for c, x := range chains {
			if first[c] = x[:t]; every > 1 {
				first[c] = everyNth(x[:t], every)
			}
		}
		at = append(at, float64(t))
		rhat = append(rhat, diagnostics.RHat(first))
		p, u := diagnostics.PSRF(first)
		psrf, upper = append(psrf, p), append(upper, u)
	}
	return at, rhat, psrf, upper
}

// everyNth returns every n-th value, the last among them.
func everyNth(x []float64, n int) []float64 {
	out := make([]float64, 0, len(x)/n+1)
	for i := (len(x) - 1) % n; i < len(x); i += n {
		out = append(out, x[i])
	}
	return out
}

// meanPoints is the number of draws at which running means are taken.
const meanPoints = 200

// RunningMean draws the mean of the draws so far of each chain, and the mean of
// all chains ± 2 standard deviations: Figure 6 of Filippone and Engler (2015).
func RunningMean(w io.Writer, d Draws, opts ...Option) error {
	f := newFigure("Running mean ± 2 sd"+d.thinned(), d.say("The mean of the draws so far, of each chain and of all, with two standard deviations about it"), opts)
	for i, name := range d.Names {
		p := newPlot("", "draws of each chain", "mean, "+name)
		at, means, mean, sd := runningMoments(d.X[i])
		for k := range at {
			at[k] = float64(d.First) + at[k]*float64(max(1, d.Every))
		}
		for c, y := range means {
			if err := f.line(p, at, y, chainStroke(c, len(means))); err != nil {
				return err
			}
		}
		lo, hi := make([]float64, len(at)), make([]float64, len(at))
		for k := range at {
			lo[k], hi[k] = mean[k]-2*sd[k], mean[k]+2*sd[k]
		}
		if err := f.line(p, at, mean, stroke{name: "mean of all chains", colour: ink, width: vg.Points(1.5)}); err != nil {
			return err
		}
		for _, y := range [][]float64{lo, hi} {
			if err := f.line(p, at, y, stroke{name: "± 2 sd", colour: ink, width: vg.Points(1), dashed: true}); err != nil {
				return err
			}
		}
		f.add(p)
	}
	return f.write(w)
}

// runningMoments returns, at some numbers of draws, the mean of each chain and
// mean and sd of all.
func runningMoments(chains [][]float64) (at []float64, means [][]float64, mean, sd []float64) {
	if len(chains) == 0 || len(chains[0]) == 0 {
		return nil, nil, nil, nil
	}
	n, m := len(chains[0]), len(chains)
	means = make([][]float64, m)
	sums := make([]float64, m)
	origin := chains[0][0] // moments about a draw lose no digits
	var total, squares float64
	step := max(1, n/meanPoints)
	for t := range n {
		for c, x := range chains {
			v := x[t] - origin
			sums[c] += v
			total += v
			squares += v * v
		}
		if (t+1)%step != 0 && t+1 != n {
			continue
		}
		at = append(at, float64(t+1))
		for c := range chains {
			means[c] = append(means[c], origin+sums[c]/float64(t+1))
		}
		k := float64((t + 1) * m)
		mu := total / k
		mean = append(mean, origin+mu)
		if k > 1 {
			sd = append(sd, math.Sqrt(max(0, (squares-k*mu*mu)/(k-1))))
		} else {
			sd = append(sd, math.NaN())
		}
	}
	return at, means, mean, sd
}
