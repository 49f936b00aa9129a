package precond

import (
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/kernel"
	"github.com/ulisse-gp/ulisse/internal/random"
)

// Every kind but random Fourier features takes a covariance without spectral draws, some of whose
// elements are negative.
func TestLeavesWithoutSpectralDraws(t *testing.T) {
	c, err := kernel.Parse("a*rq(1-2:u;=2)*cosine(1:=2:1)*wendland(1-2:w)", 2)
	if err != nil {
		t.Fatal(err)
	}
	op := operatorOf(c, 300, 2, 0.1, 1.2, 0.4, 0.2)
	for _, kind := range append(Kinds(), InnerKinds()...) {
		_, err := BuildAny(t.Context(), kind, op, 30, random.Key{Seed: 3})
		if kind == "fourier" {
			if err == nil || !strings.Contains(err.Error(), "there are no draws from the spectral density of wendland(1-2:w): use another preconditioner") {
				t.Errorf("%s: %v", kind, err)
			}
		} else if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
