package state

import "testing"

func TestFormatOf(t *testing.T) {
	for text, want := range map[string]uint64{
		`{"time":"2026-01-01T00:00:00Z","drop":{"sha256":"x"}}`:             1,
		`{"format":2,"time":"2026-01-01T00:00:00Z","drop":{"sha256":"x"}}`:  2,
		`{"format":17,"time":"2026-01-01T00:00:00Z","drop":{"sha256":"x"}}`: 17,
		`{"format":0}`: 1, `{"format":-3}`: 1, ``: 1, `{"format":`: 1,
	} {
		if got := FormatOf([]byte(text)); got != want {
			t.Errorf("%s is of format %d, want %d", text, got, want)
		}
	}
	if text, err := Encode(epoch, &Loaded{Plan: testPlan()}); err != nil || FormatOf(text) != 1 {
		t.Errorf("a plan without latent vectors: %s, %v", text, err)
	}
	for want, c := range map[uint64]Command{1: &ForgetBlob{SHA256: "x"}, 2: &Report{Job: "a"}, 3: &Loaded{Plan: latentPlan()}} {
		text, err := Encode(epoch, c)
		if err != nil {
			t.Fatal(err)
		}
		if got := FormatOf(text); got != want {
			t.Errorf("%s is of format %d, want %d", text, got, want)
		}
	}
}
