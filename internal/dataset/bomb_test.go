package dataset

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
)

// spread is a reader of the same bytes again and again.
type spread struct {
	piece []byte
	left  int64
}

func (s *spread) Read(p []byte) (int, error) {
	if s.left <= 0 {
		return 0, io.EOF
	}
	n := min(len(p), len(s.piece), int(s.left))
	s.left -= int64(n)
	return copy(p[:n], s.piece), nil
}

// Small files that stand for large ones are refused before they cost much.
func TestBombs(t *testing.T) {
	lines := []byte(strings.Repeat("0", 8<<10) + ",0\n") // long, to be read fast
	compress := func(w io.WriteCloser, out *bytes.Buffer) []byte {
		t.Helper()
		fmt.Fprint(w, "a,y\n")
		if _, err := io.Copy(w, &spread{lines, 9000 * int64(len(lines))}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	var g, z bytes.Buffer
	gw := gzip.NewWriter(&g)
	zw, err := zstd.NewWriter(&z, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		A float64 `parquet:"a,dict"`
		Y float64 `parquet:"y,dict"`
	}
	var p bytes.Buffer
	pw := parquet.NewGenericWriter[row](&p)
	if _, err := pw.Write(make([]row, 100_000)); err != nil {
		t.Fatal(err)
	}
	if err := pw.Close(); err != nil {
		t.Fatal(err)
	}
	lim := Limits{Rows: 1 << 30, Columns: 10, Bytes: 1 << 30}
	for name, c := range map[string]struct {
		r    io.Reader
		lim  Limits
		want string
	}{
		"gzip":      {bytes.NewReader(compress(gw, &g)), lim, "it inflates to more than 500 times its size"},
		"Zstandard": {bytes.NewReader(compress(zw, &z)), lim, "it inflates to more than 500 times its size"},
		"a line":    {io.MultiReader(strings.NewReader("a,y\n1,"), &spread{[]byte("111111111111"), 100 << 20}), lim, "a line of more than"},
		"a quote":   {io.MultiReader(strings.NewReader("a,y\n1,\""), &spread{[]byte("11111\n"), 100 << 20}), lim, "a quote that is not closed"},
		"rows": {bytes.NewReader(p.Bytes()), Limits{Rows: 1 << 30, Columns: 10, Bytes: int64(p.Len())},
			fmt.Sprintf("100000 rows of 2 columns of numbers, more than the limit of %d bytes", p.Len())},
	} {
		if _, err := Read(c.r, "f", Select{Target: "y"}, c.lim); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, not %q", name, err, c.want)
		}
	}
}
