package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page of reference posteriors shows what the files say.
func TestPage(t *testing.T) {
	doc, err := os.ReadFile("../../docs/posteriors.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		s, err := readSummary(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(doc), page(s)) {
			t.Errorf("docs/posteriors.md has not what %s says (go run ./bench/posteriors -page %s):\n%s", file, file, page(s))
		}
		if !strings.Contains(string(doc), filepath.Base(file)) {
			t.Errorf("docs/posteriors.md does not name %s", file)
		}
	}
}

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		value, err float64
		want       string
	}{
		{-1.23456, 0.0012, "−1.2346 ± 0.0012"}, {361.7, 0.0951, "361.700 ± 0.095"}, {12.3, 4.6, "12.3 ± 4.6"}, {1, 0, "1"},
		{1234, 56, "1234 ± 56"},
	} {
		if got := (Number{c.value, c.err}).String(); got != c.want {
			t.Errorf("%g with error %g is %q, want %q", c.value, c.err, got, c.want)
		}
	}
}
