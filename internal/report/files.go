package report

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
)

// SumsFile is the last file that WriteAll writes.
const SumsFile = "SHA256SUMS"

// WriteAll writes the results of a run into a directory: result.json,
// draws/chain-K.csv, summary.json, summary.txt, report.html, and the plots
// trace.svg, density.svg, rank.svg, mean.svg, rhat.svg, autocorrelation.svg and
// pairs.svg; and SHA256SUMS of all of these, as sha256sum takes it. sum is the record's
// summary.
func WriteAll(dir string, rec *Record, sum *Summary) error {
	if err := os.MkdirAll(filepath.Join(dir, "draws"), 0o755); err != nil {
		return err
	}
	files := map[string]func(io.Writer) error{}
	for c := range rec.Run.Chains {
		files[fmt.Sprintf("draws/chain-%d.csv", c+1)] = func(w io.Writer) error { return WriteCSV(w, rec, nil, c) }
	}
	pics, err := pictures(rec)
	if err != nil {
		return err
	}
	for _, p := range pics {
		files[p.Name+".svg"] = func(w io.Writer) error {
			_, err := w.Write(p.SVG)
			return err
		}
	}
	return writeFiles(dir, rec, sum, files, pics)
}

// writeFiles writes some files, those that every folder of results has, and SHA256SUMS of all of them.
func writeFiles(dir string, rec *Record, sum *Summary, files map[string]func(io.Writer) error, pics []picture) error {
	files["summary.json"] = func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(sum)
	}
	files["summary.txt"], files[recordFile] = sum.WriteText, rec.write
	files["report.html"] = func(w io.Writer) error { return writePage(w, rec, sum, pics, time.Now()) }
	sums := ""
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := sha256.New()
		err := atomicfile.Write(filepath.Join(dir, name), 0o644, func(w io.Writer) error { return files[name](io.MultiWriter(w, h)) })
		if err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		sums += fmt.Sprintf("%x  %s\n", h.Sum(nil), name)
	}
	return atomicfile.WriteBytes(filepath.Join(dir, SumsFile), 0o644, []byte(sums))
}
