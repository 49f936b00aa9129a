package plots

import (
	"io"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// maxRankBins is the number of bins of a rank plot; few draws have fewer.
const maxRankBins = 20

// Rank draws for each chain the histogram of its draws' ranks among those of all
// chains (Vehtari et al. 2021). Where chains agree every histogram is flat, but
// for chance: 95 % of the bins of independent draws lie in the band.
func Rank(w io.Writer, d Draws, opts ...Option) error {
	f := newFigure("Ranks of each chain's draws"+d.thinned(), d.say("How often each chain's draws are low or high among all; flat is best"), opts)
	for i, name := range d.Names {
		p := newPlot("", "rank of "+name+" among all chains / %", "draws")
		p.X.Min, p.X.Max, p.Y.Min = 0, 100, 0
		counts, n := ranks(d.X[i])
		if len(counts) == 0 {
			f.add(p)
			continue
		}
		bins := len(counts[0])
		lo, hi := binomialBand(n, bins)
		if err := f.band(p, []float64{0, 100}, lo, hi, "95 % of bins, if chains agree"); err != nil {
			return err
		}
		if err := f.level(p, []float64{0, 100}, float64(n)/float64(bins), ""); err != nil {
			return err
		}
		for c, k := range counts {
			var x, y []float64
			for b, v := range k {
				x = append(x, 100*float64(b)/float64(bins), 100*float64(b+1)/float64(bins))
				y = append(y, v, v)
			}
			if err := f.line(p, x, y, chainStroke(c, len(counts))); err != nil {
				return err
			}
			p.Y.Max = max(p.Y.Max, 1.3*hi)
		}
		f.add(p)
	}
	return f.write(w)
}

// ranks counts for each chain how many of its n draws lie in each bin of the
// ranks of all.
func ranks(chains [][]float64) (counts [][]float64, n int) {
	if len(chains) == 0 {
		return nil, 0
	}
	n = len(chains[0])
	bins := min(maxRankBins, n/5)
	if bins < 2 {
		return nil, n
	}
	type from struct {
		v float64
		c int
	}
	all := make([]from, 0, n*len(chains))
	counts = make([][]float64, len(chains))
	for c, x := range chains {
		counts[c] = make([]float64, bins)
		for _, v := range x {
			all = append(all, from{v, c})
		}
	}
	slices.SortFunc(all, func(a, b from) int {
		switch {
		case a.v < b.v:
			return -1
		case a.v > b.v:
			return 1
		}
		return 0
	})
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].v == all[i].v {
			j++
		}
		b := min(bins-1, (i+j)*bins/(2*len(all))) // ties have their mean rank
		for ; i < j; i++ {
			counts[all[i].c][b]++
		}
	}
	return counts, n
}

// binomialBand returns the bounds that 95 % of the bins of n independent draws
// keep within.
func binomialBand(n, bins int) (lo, hi float64) {
	b := distuv.Binomial{N: float64(n), P: 1 / float64(bins)}
	quantile := func(p float64) float64 {
		least, most := 0, n // CDF(most) ≥ p
		for least < most {
			if m := (least + most) / 2; b.CDF(float64(m)) >= p {
				most = m
			} else {
				least = m + 1
			}
		}
		return float64(least)
	}
	return quantile(0.025), quantile(0.975)
}
