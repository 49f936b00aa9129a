package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// readSummary reads a file that -out wrote.
func readSummary(path string) (*Summary, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var s Summary
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &s, nil
}

// page returns a summary as tables for docs/posteriors.md, values to the digit that
// their errors reach.
func page(s *Summary) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d proposals, %.2f accepted; effective draws %.0f (the least of the parameters); R-hat %.4f; log evidence %s.\n\n",
		s.Draws, s.Acceptance, slices.MinFunc(s.Parameters, func(a, b Parameter) int { return int(math.Copysign(1, a.ESS-b.ESS)) }).ESS, s.RHat, s.LogEvidence)
	b.WriteString("| | mean | sd | 2.5 % | 50 % | 97.5 % |\n|---|---:|---:|---:|---:|---:|\n")
	for _, p := range s.Parameters {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", strings.Replace(p.Name, "log_", "log ", 1), p.Mean, p.SD,
			p.Quantiles["0.025"], p.Quantiles["0.5"], p.Quantiles["0.975"])
	}
	if len(s.Modes) == 1 && len(s.Modes[0].Maxima) == 1 {
		return b.String()
	}
	b.WriteString("\n| mode | share | maxima | log density at its highest |\n|---:|---:|---:|---:|\n")
	for i, m := range s.Modes {
		fmt.Fprintf(&b, "| %d | %s | %d | %s |\n", i+1, m.Mass, len(m.Maxima), minus(fmt.Sprintf("%.3f", m.Maxima[0].LogDensity)))
	}
	return b.String()
}

// String returns the value with its error, which has two digits: -1.2346 ± 0.0012.
func (n Number) String() string {
	if !(n.Error > 0) {
		return fmt.Sprintf("%g", n.Value)
	}
	digits := max(0, 1-int(math.Floor(math.Log10(n.Error))))
	return minus(fmt.Sprintf("%.*f ± %.*f", digits, n.Value, digits, n.Error))
}

func minus(s string) string { return strings.ReplaceAll(s, "-", "−") }
