package job

import (
	"strings"
	"testing"
)

func TestMistakesInOffsets(t *testing.T) {
	for data, want := range map[string]string{
		"path: t.csv, target: y, offset: y":                                        "data.offset: this is the target",
		"path: t.csv, target: y, offset: o, exclude: [o]":                          "data.offset: this column is excluded",
		"path: t.csv, target: y, offset: o, inputs: [o]":                           "data.offset: this column is one of data.inputs",
		"path: t.csv, target: y, offset: o, weights: o":                            "data.offset: this column says what noise",
		"synthetic: {n: 9, d: 1, sigma: 1, tau: 1, lambda: 1, seed: 1}, offset: o": "data.offset: generated data have no such column",
		"path: t.csv, target: y, ofset: o":                                         `did you mean "offset"`,
	} {
		if _, err := ParseString("name: x\ndata: {" + data + "}"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", data, err)
		}
	}
}
