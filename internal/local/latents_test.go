package local

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/latent"
	"github.com/ulisse-gp/ulisse/internal/random"
	"github.com/ulisse-gp/ulisse/internal/sampler/samplertest"
)

const latentText = `
name: latent
data: {synthetic: {n: 60, d: 2, sigma: 1, tau: 0.5, lambda: 0.1, seed: 3}}
sampler: {method: chaotic, chains: 2, warmup: 10, draws: 60, checkpoint: 5}
solver: {method: cg, preconditioner: {kind: none}}
stop: {rhat: 1.0001, ess: 1e9, max_draws: 60}
`

func latentFiles(t *testing.T, journal string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(journal+".latent", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A chain that carries latent vectors goes on from its journal with the same bits,
// wherever it stopped; beside the journal are the vectors that it names, and no
// others. They are those that the recurrence gives without a stop.
func TestLatentVectorsAreResumed(t *testing.T) {
	s := spec(t, latentText)
	want := run(t, config(t, s, 1, t.TempDir()))
	c := config(t, s, 2, t.TempDir())
	var got *chains.Run
	for stops := 0; got == nil; stops++ {
		ctx, cancel := context.WithCancel(context.Background())
		events := 0
		c.Watch = func(View) {
			if events++; events == 2+stops%3 {
				cancel()
			}
		}
		r, _, err := Run(ctx, c)
		cancel()
		switch {
		case err == nil && stops < 5:
			t.Fatalf("interrupted %d times only", stops)
		case err == nil:
			got = r
		case !ErrInterrupted(err):
			t.Fatal(err)
		}
	}
	if draws(got) != draws(want) {
		t.Error("the draws depend on interruptions")
	}
	files := latentFiles(t, c.Journal)
	if len(files) != 2 {
		t.Errorf("%d files of 2 chains: %v", len(files), files)
	}
	for i, ch := range got.Chains {
		v := latent.New(2, 60)
		for iter := 1; iter <= ch.State.Iter; iter++ {
			samplertest.Advance(v, random.Key{Seed: got.Plan.Seed, Chain: i + 1, Iter: iter})
		}
		if ref := latent.RefOf(latent.Encode(v)); ref != ch.State.Latent {
			t.Errorf("chain %d names %v, and the recurrence gives %v", i+1, ch.State.Latent, ref)
		}
	}
}

// One bit that is lost shows; a file that is damaged, or gone, is found before it is
// gone on from, and what a crash left is removed.
func TestLatentVectorsOnDisk(t *testing.T) {
	s := spec(t, latentText)
	want := run(t, config(t, s, 1, t.TempDir()))
	stopped := func() (Config, []string) {
		c := config(t, s, 1, t.TempDir())
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		c.Watch = func(v View) {
			if v.Run.Chains[0].State.Iter >= 15 && v.Run.Chains[1].State.Iter >= 15 {
				cancel()
			}
		}
		if _, _, err := Run(ctx, c); !ErrInterrupted(err) {
			t.Fatal(err)
		}
		c.Watch = nil
		return c, latentFiles(t, c.Journal)
	}
	for what, harm := range map[string]func(path string, b []byte) error{
		"damaged": func(path string, b []byte) error { b[len(b)-8] ^= 1; return os.WriteFile(path, b, 0o600) },
		"gone":    func(path string, _ []byte) error { return os.Remove(path) },
	} {
		c, files := stopped()
		b, err := os.ReadFile(files[0])
		if err == nil {
			err = harm(files[0], b)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Run(t.Context(), c); err == nil {
			t.Errorf("%s: it went on", what)
		}
	}
	c, files := stopped()
	stray := filepath.Join(filepath.Dir(files[0]), ".stray")
	if err := os.WriteFile(stray, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := run(t, c)
	if _, err := os.Stat(stray); err == nil {
		t.Error("what a crash left stays")
	}
	if draws(got) != draws(want) {
		t.Error("the draws depend on the interruption")
	}

	// The draws would not be the same with one bit less.
	v, bad := latent.New(2, 60), latent.New(2, 60)
	differ := false
	for iter := 1; iter <= 100; iter++ {
		key := random.Key{Seed: 1, Chain: 1, Iter: iter}
		samplertest.Advance(v, key)
		samplertest.Advance(bad, key)
		if iter == 10 {
			bad[0][7] = math.Float64frombits(math.Float64bits(bad[0][7]) ^ 1)
		}
		differ = differ || fmt.Sprintf("%.3f", v) != fmt.Sprintf("%.3f", bad)
	}
	if !differ {
		t.Error("the test's method forgets")
	}
}
