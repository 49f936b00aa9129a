package cputime

import "testing"

func TestSecondsGrow(t *testing.T) {
	start, x := Seconds(), 1.0
	for Seconds() == start {
		for range 1000 {
			x = x*0.999 + 0.001
		}
	}
	if Seconds() <= start || x > 1.01 {
		t.Errorf("from %v to %v", start, Seconds())
	}
}
