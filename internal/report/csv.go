package report

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// WriteCSV writes the draws of chain c (from 0) in the form of CmdStan: comment
// lines with the settings, a header, a row for each draw. Elements of vectors
// are called tau.1, tau.2, … as there. Statistics of the iterations, if stats is
// not nil, come first, with names that end in two underscores. The log density, lp__,
// is one of them if it was computed (export.LogDensities): it is not among what
// all samplers compute. Values are exact.
func WriteCSV(w io.Writer, rec *Record, stats *Stats, c int) error {
	bw := bufio.NewWriter(w)
	r := rec.Run
	ch := &r.Chains[c]
	source := rec.Spec.Data.Path
	if source == "" {
		source = "generated"
	}
	fmt.Fprintf(bw, "# stan_version_major = 2\n# stan_version_minor = 33\n# stan_version_patch = 0\n")
	fmt.Fprintf(bw, "# model = %s\n# method = sample (Default)\n#   sample\n", rec.Spec.Name)
	fmt.Fprintf(bw, "#     num_samples = %d\n#     num_warmup = %d\n#     save_warmup = 0 (Default)\n#     thin = 1 (Default)\n", len(ch.Draws), ch.Warmup)
	fmt.Fprintf(bw, "#     algorithm = fixed_param\n# id = %d\n# data\n#   file = %s\n# random\n#   seed = %d\n", c+1, oneLine(source), rec.Spec.Seed)
	fmt.Fprintf(bw, "# ulisse_version = %s\n# ulisse_method = %s\n# ulisse_data_sha256 = %s\n# ulisse_instruction_set = %s\n",
		rec.Origin.Version, r.Plan.Method, rec.Data.SHA256, rec.InstructionSet)
	if t := r.Settings; t != nil && t.Step > 0 {
		fmt.Fprintf(bw, "# ulisse_step = %v\n# ulisse_probes = %d\n", t.Step, t.Probes)
	}
	q := Quantities(rec.Model, &rec.Data)
	var names []string
	if stats != nil {
		names = stats.Names
		for _, name := range names {
			bw.WriteString(stanStat(name) + ",")
		}
	}
	bw.WriteString(stanNames(q) + "\n")
	for t, psi := range ch.Draws {
		for _, name := range names {
			bw.WriteString(exactText(stats.X[name][c][t]) + ",")
		}
		writeRow(bw, q, psi)
	}
	milli := func(s float64) float64 { return math.Round(1000*s) / 1000 }
	total, warmup := milli(ch.Cost.Seconds), milli(ch.WarmupSeconds())
	fmt.Fprintf(bw, "# \n#  Elapsed Time: %v seconds (Warm-up)\n#                %v seconds (Sampling)\n#                %v seconds (Total)\n# \n",
		warmup, milli(total-warmup), total)
	return bw.Flush()
}

// WriteTable writes the draws of all chains as one CSV table: the quantities by
// their names, after two columns that tell the chain and the draw, from 1, and, if lp[c][t]
// is not nil, one with the log density, lp__.
func WriteTable(w io.Writer, rec *Record, lp [][]float64) error {
	bw := bufio.NewWriter(w)
	q := Quantities(rec.Model, &rec.Data)
	head := []string{"chain__", "draw__"}
	if lp != nil {
		head = append(head, "lp__")
	}
	for _, x := range q {
		head = append(head, x.Name)
	}
	cw := csv.NewWriter(bw) // inputs may be called anything
	cw.Write(head)
	cw.Flush()
	for c, ch := range rec.Run.Chains {
		for t, psi := range ch.Draws {
			fmt.Fprintf(bw, "%d,%d,", c+1, t+1)
			if lp != nil {
				bw.WriteString(exactText(lp[c][t]) + ",")
			}
			writeRow(bw, q, psi)
		}
	}
	return bw.Flush()
}

// writeRow writes the values of a draw, exactly.
func writeRow(w *bufio.Writer, q []Quantity, psi []float64) {
	for i, x := range q {
		if i > 0 {
			w.WriteByte(',')
		}
		w.WriteString(exactText(x.Of(psi)))
	}
	w.WriteByte('\n')
}

// exactText returns the shortest text that reads as the same float64, in the
// words of C++ and R.
func exactText(x float64) string {
	if math.IsNaN(x) {
		return "nan"
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// stanNames returns the header of a CSV table.
func stanNames(q []Quantity) string {
	names := make([]string, len(q))
	for i, x := range q {
		names[i] = x.Stan
	}
	return strings.Join(names, ",")
}

// stanName returns the name of a CSV column: tau[1] becomes tau.1.
func stanName(name string) string {
	return strings.NewReplacer("[", ".", "]", "").Replace(name)
}

// stanStat returns the name of a statistic's column, CmdStan's own where it has
// one.
func stanStat(name string) string {
	if name == sampler.AcceptanceRate {
		return "accept_stat__"
	}
	return name + "__"
}

// oneLine keeps a text from ending its comment.
func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(s) }
