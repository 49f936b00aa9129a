package nearest

import "testing"

func TestWord(t *testing.T) {
	for _, c := range []struct {
		word  string
		known []string
		want  string
	}{
		{"rbff", []string{"matern12", "rbf"}, "rbf"},
		{"LogNormal", []string{"halfnormal", "lognormal"}, "lognormal"},
		{"inv_gamma", []string{"gamma", "invgamma"}, "invgamma"},
		{"Strenght", []string{"age", "strength"}, "strength"},
		{"xyz", []string{"age", "strength"}, ""},
		{"nuts", []string{"auto"}, ""},
		{"rfb", []string{"rbf"}, "rbf"},
		{"b", []string{"a"}, ""},
		{"x", nil, ""},
	} {
		if got, ok := Word(c.word, c.known); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s: %q, %v", c.word, got, ok)
		}
	}
}
