package predict

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The scores are those of counting all rows, and all pairs, one by one.
func TestScoreClasses(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	rows := make([]Row, 60)
	p := make([]float64, len(rows))
	for i := range rows {
		p[i] = math.Round(10*r.Float64()+0.4) / 11.2 // with ties
		if r.Float64() < p[i] {
			rows[i].Target, rows[i].LogDensity = 1, math.Log(p[i])
		} else {
			rows[i].LogDensity = math.Log1p(-p[i])
		}
	}
	var wrong, brier, pairs, ordered float64
	for i, a := range rows {
		brier += (p[i] - a.Target) * (p[i] - a.Target) / 60
		if a.Target != math.Round(p[i]) {
			wrong++
		}
		for k, b := range rows {
			if a.Target == 1 && b.Target == 0 {
				pairs++
				switch d := p[i] - p[k]; {
				case math.Abs(d) < 1e-12:
					ordered += 0.5
				case d > 0:
					ordered++
				}
			}
		}
	}
	s := scoreClasses(rows)
	if math.Abs(s.Error-wrong/60) > 1e-12 || math.Abs(s.Brier-brier) > 1e-12 || s.AUC == nil || math.Abs(*s.AUC-ordered/pairs) > 1e-12 {
		t.Errorf("%+v, AUC %v; want error %v, Brier %v, AUC %v", s, s.AUC, wrong/60, brier, ordered/pairs)
	}
	if s := scoreClasses(rows[:1]); s.AUC != nil {
		t.Errorf("one row has the AUC %v", *s.AUC)
	}
}
