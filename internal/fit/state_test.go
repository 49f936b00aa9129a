package fit

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"slices"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/deep"
	"github.com/ulisse-gp/ulisse/internal/parallel"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

// keeper keeps one of so many states.
type keeper struct {
	every, steps int
	text         []byte
	kept         int
}

func (k *keeper) Due() bool {
	k.steps++
	return k.steps%k.every == 0
}

func (k *keeper) Keep(s *State) error {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(s)
	k.text = b.Bytes()
	k.kept++
	return err
}

// A fit from minibatches that is interrupted at any step keeps its last state, and goes on from it, again and again, to the bits of one that was not.
func TestGoesOnFromItsState(t *testing.T) {
	p, b := sparseProblem(t, 100), parallel.NewBudget(1)
	start := []float64{0, 0, -1}
	for name, fitted := range map[string]func(ctx context.Context, o Options) (*Result, error){
		"svgp": func(ctx context.Context, o Options) (*Result, error) {
			return Stochastic(ctx, p, posterior.NewSparse(p, sparse.SVGP, p.Inputs.Select([]int{1, 20, 50, 70, 90}), b), 20, true, 3, start, 60, o)
		},
		"deep": func(ctx context.Context, o Options) (*Result, error) {
			d, err := posterior.NewDeep(p, deep.Config{Layers: 2, Features: 5, Hidden: 2, Covariance: deep.RBF, Frequencies: deep.Resampled, Seed: 1}, b)
			if err != nil {
				t.Fatal(err)
			}
			return Deep(ctx, d, start, deep.Options{Steps: 60, Minibatch: 30, Step: 0.02}, o)
		},
	} {
		want, err := fitted(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		var from *State
		for interruptions := 0; ; interruptions++ {
			ctx, cancel := context.WithCancel(t.Context())
			k, steps := &keeper{every: 7}, 0
			got, err := fitted(ctx, Options{From: from, Keeper: k, Tell: func(Step) {
				if steps++; steps == 17 {
					cancel()
				}
			}})
			cancel()
			if err == nil {
				if interruptions < 3 || !slices.Equal(got.Psi, want.Psi) || !slices.Equal(got.Extra, want.Extra) || got.Value != want.Value || len(got.Trace) != len(want.Trace) {
					t.Errorf("%s: after %d interruptions ψ = %v, value %v of %d steps; want %v, %v of %d", name, interruptions, got.Psi, got.Value, len(got.Trace), want.Psi, want.Value, len(want.Trace))
				}
				break
			}
			if !errors.Is(err, context.Canceled) || k.kept < 2 {
				t.Fatalf("%s: %v, after %d states", name, err, k.kept)
			}
			from = &State{}
			if err := gob.NewDecoder(bytes.NewReader(k.text)).Decode(from); err != nil {
				t.Fatal(err)
			}
		}
	}
}
