package plural

import "testing"

func TestOf(t *testing.T) {
	for want, got := range map[string]string{
		"0 draws":     Of(0, "draw"),
		"1 draw":      Of(1, "draw"),
		"1000 draws":  Of(1000, "draw"),
		"2 matrices":  Of(2, "matrix"),
		"3 densities": Of(3, "density"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
