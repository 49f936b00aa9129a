package param

import (
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
)

func TestNames(t *testing.T) {
	for _, x := range []struct {
		p          Param
		name, deep string
	}{
		{Param{Symbol: "sigma"}, "sigma", "log_sigma"},
		{Param{Symbol: "tau", Index: "3"}, "tau[3]", "log_tau[3]"},
		{Param{Term: "trend", Symbol: "tau", Index: "year"}, "trend.tau[year]", "trend.log_tau[year]"},
	} {
		if got := x.p.Name(); got != x.name {
			t.Errorf("%s, want %s", got, x.name)
		}
		if got := x.p.As("log_"+x.p.Symbol, x.p.Index); got != x.deep {
			t.Errorf("%s, want %s", got, x.deep)
		}
	}
}

func TestList(t *testing.T) {
	l := List{{Symbol: "a", Prior: mustPrior(t, "gamma(2,1)", Variance)}, {Symbol: "b", Role: Rate, Prior: mustPrior(t, "lognormal(1,0.5)", Rate)}}
	if !slices.Equal(l.Names(), []string{"a", "b"}) {
		t.Errorf("names %v", l.Names())
	}
	psi := []float64{0.3, -1.2}
	back := l.Sampled(l.Natural(psi))
	for i := range psi {
		if math.Abs(back[i]-psi[i]) > 1e-15 {
			t.Errorf("%v came back as %v", psi[i], back[i])
		}
	}
	value, grad := l.LogPrior(psi)
	a, _ := l[0].Prior.LogDensity(psi[0])
	b, _ := l[1].Prior.LogDensity(psi[1])
	if value != a+b {
		t.Errorf("log prior %v, want %v", value, a+b)
	}
	want := fd.Gradient(nil, func(x []float64) float64 { v, _ := l.LogPrior(x); return v }, psi, &fd.Settings{Formula: fd.Central})
	for i := range want {
		if math.Abs(grad[i]-want[i]) > 1e-6 {
			t.Errorf("derivative %v, differences %v", grad[i], want[i])
		}
	}
	for _, x := range []struct {
		psi    []float64
		usable bool
	}{{psi, true}, {[]float64{1}, false}, {[]float64{0, 800}, false}, {[]float64{-800, 0}, false}, {[]float64{math.NaN(), 0}, false}} {
		if l.Usable(x.psi) != x.usable {
			t.Errorf("ψ = %v: usable is %v", x.psi, !x.usable)
		}
	}
}
