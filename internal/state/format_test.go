package state

import "testing"

func TestFormatOf(t *testing.T) {
	for _, want := range []uint64{1, 2, 17} {
		c := Command{Drop: &Drop{SHA256: "x"}}
		if want > 1 {
			c.Format = want
		}
		text, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got := FormatOf(text); got != want {
			t.Errorf("%s is of format %d, want %d", text, got, want)
		}
		if back, err := decode(text); err != nil || back.Format != c.Format {
			t.Errorf("%s: %v", text, err)
		}
	}
}
