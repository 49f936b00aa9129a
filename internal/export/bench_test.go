package export

import (
	"path/filepath"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/report"
)

// BenchmarkWrite writes 100,000 draws of 4 chains: 13 quantities each, and six
// statistics.
func BenchmarkWrite(b *testing.B) {
	src := source(b, true)
	run := src.Record.Run
	run.Chains = run.Chains[:1]
	for len(run.Chains[0].Draws) < 25000 {
		run.Chains[0].Draws = append(run.Chains[0].Draws, run.Chains[0].Draws...)
	}
	run.Chains[0].Draws = run.Chains[0].Draws[:25000]
	for len(run.Chains) < 4 {
		run.Chains = append(run.Chains, run.Chains[0])
	}
	src.Stats, src.Predictive = report.NewStats(run), nil
	for _, name := range Formats() {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			for i := 0; b.Loop(); i++ {
				if err := Write(name, filepath.Join(dir, string(rune('a'+i%26))+name+".x"), src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
