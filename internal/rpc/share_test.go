package rpc

import "testing"

func TestShare(t *testing.T) {
	s := &Share{Each: 2, All: 3}
	take := func(who string, want error) func() {
		t.Helper()
		end, err := s.Take(who)
		if err != want {
			t.Fatalf("%s: %v, not %v", who, err, want)
		}
		return end
	}
	end := take("a", nil)
	take("a", nil)
	take("a", ErrEach)
	take("b", nil)
	take("b", ErrAll)
	end()
	end() // once
	take("b", nil)
	take("a", ErrAll)
	if len(s.by) != 2 || s.total != 3 {
		t.Errorf("%+v", s)
	}
	for range 2 {
		s.give("b")
	}
	s.give("a")
	if len(s.by) != 0 || s.total != 0 {
		t.Errorf("nobody is left, but %+v", s)
	}
}
