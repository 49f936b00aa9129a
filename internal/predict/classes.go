package predict

import (
	"cmp"
	"math"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
)

// ClassScores are how well classes 0 and 1 were predicted, besides the mean log probability
// (Scores.MLPD).
type ClassScores struct {
	Error float64 `json:"error"` // share of rows whose class is not the more probable one
	Brier float64 `json:"brier"` // mean square of the probability less the class
	// AUC is the share of pairs of rows of either class in which that of class 1 has the greater
	// probability; nil where there is one class only.
	AUC *float64 `json:"auc"`
}

// OrderScores are how well classes in order were predicted, besides the mean log probability (Scores.MLPD) and the ranked
// probability score (Scores.CRPS).
type OrderScores struct {
	Error float64 `json:"error"` // share of rows whose class is not the likeliest one
	Brier float64 `json:"brier"` // mean sum, over the classes, of squares of the probability less 1 for the row's class, 0 for others
	Off   float64 `json:"off"`   // mean number of classes from the row's to the likeliest one
}

// UnorderedScores are how well classes without an order were predicted, besides the mean log probability (Scores.MLPD).
type UnorderedScores struct {
	Error float64 `json:"error"` // share of rows whose class is not the likeliest one
	Brier float64 `json:"brier"` // as that of OrderScores
}

// scoreOrder returns the scores of rows whose classes are known, one at least.
func scoreOrder(rows []Row) *OrderScores {
	s := &OrderScores{}
	n := float64(len(rows))
	for _, r := range rows {
		likeliest := 0
		for c, class := range r.Classes {
			d := class.Probability
			if float64(c) == r.Target {
				d--
			}
			s.Brier += d * d / n
			if class.Probability > r.Classes[likeliest].Probability {
				likeliest = c
			}
		}
		if off := math.Abs(float64(likeliest) - r.Target); off > 0 {
			s.Error += 1 / n
			s.Off += off / n
		}
	}
	return s
}

// Classified returns the probabilities of the classes and the class of each row whose class is known, under a likelihood of classes; nil under another.
func Classified(rows []Row, l likelihood.Likelihood) (p [][]float64, class []int) {
	two := likelihood.OfClasses(l)
	if !two && !likelihood.OfOrder(l) && !likelihood.OfCategories(l) {
		return nil, nil
	}
	for _, r := range rows {
		if !r.known() {
			continue
		}
		var shares []float64
		if two {
			shares = []float64{1 - probability(r), probability(r)}
		}
		for _, c := range r.Classes {
			shares = append(shares, c.Probability)
		}
		p, class = append(p, shares), append(class, int(r.Target))
	}
	return p, class
}

// probability returns that of class 1 of two in a row whose class is known, also where the latent function was asked for.
func probability(r Row) float64 {
	if r.Target == 0 {
		return -math.Expm1(r.LogDensity)
	}
	return math.Exp(r.LogDensity)
}

// scoreClasses returns the scores of rows whose classes are known, one at least.
func scoreClasses(rows []Row) *ClassScores {
	type guess struct{ p, y float64 }
	guesses := make([]guess, len(rows))
	s := &ClassScores{}
	n := float64(len(rows))
	for i, r := range rows {
		p := probability(r)
		guesses[i] = guess{p, r.Target}
		s.Brier += (p - r.Target) * (p - r.Target) / n
		if (p > 0.5) != (r.Target == 1) {
			s.Error += 1 / n
		}
	}
	slices.SortFunc(guesses, func(a, b guess) int { return cmp.Compare(a.p, b.p) })
	var below, ones, pairs float64 // rows of class 0 so far, of class 1, and pairs in order
	for lo := 0; lo < len(guesses); {
		hi, zeros, more := lo, 0.0, 0.0 // probabilities that are equal, but for rounding, count half
		for ; hi < len(guesses) && guesses[hi].p-guesses[lo].p <= 1e-12; hi++ {
			zeros, more = zeros+1-guesses[hi].y, more+guesses[hi].y
		}
		pairs += more * (below + zeros/2)
		below, ones, lo = below+zeros, ones+more, hi
	}
	if below > 0 && ones > 0 {
		auc := pairs / (below * ones)
		s.AUC = &auc
	}
	return s
}
