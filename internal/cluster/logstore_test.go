package cluster

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

func tempLog(t *testing.T) *logStore {
	t.Helper()
	s, err := openLogStore(filepath.Join(t.TempDir(), "raft.db"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestLogStoreKeepsEveryField(t *testing.T) {
	s := tempLog(t)
	logs := []*raft.Log{
		{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: []byte("members")},
		{Index: 2, Term: 1, Type: raft.LogNoop},
		{Index: 3, Term: 1<<63 + 5, Type: raft.LogCommand, Data: make([]byte, 1<<16), Extensions: []byte("ext"), AppendedAt: time.Unix(1700000000, 12345)},
		{Index: 1 << 40, Term: 9, Type: raft.LogBarrier, AppendedAt: time.Unix(-5, 0)},
	}
	if err := s.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
	for _, want := range logs {
		var got raft.Log
		if err := s.GetLog(want.Index, &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, &got); d != "" {
			t.Errorf("entry %d: %s", want.Index, d)
		}
	}
	for _, index := range []uint64{0, 4, 1<<40 + 1} {
		if err := s.GetLog(index, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d, which is not there: %v", index, err)
		}
	}
}

func TestLogStoreIsReopened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	s, err := openLogStore(path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.StoreLog(&raft.Log{Index: 7, Term: 3}), s.SetUint64([]byte("term"), 3), s.Set([]byte("vote"), []byte("n1"))); err != nil {
		t.Fatal(err)
	}
	if _, err := openLogStore(path, quiet); err == nil {
		t.Error("two processes had one file open")
	}
	s.Close()
	if s, err = openLogStore(path, quiet); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	last, _ := s.LastIndex()
	term, _ := s.GetUint64([]byte("term"))
	vote, _ := s.Get([]byte("vote"))
	if last != 7 || term != 3 || string(vote) != "n1" {
		t.Errorf("last %d, term %d, vote %q after reopening", last, term, vote)
	}
	if _, err := s.Get([]byte("nothing")); err == nil || err.Error() != "not found" {
		t.Errorf("a missing key must fail with the words that raft knows, not %v", err)
	}
}

// The store does what raft's own store in memory does, for the calls that raft
// makes: appending, cutting the front, cutting the end, overwriting.
func TestLogStoreAgainstMemory(t *testing.T) {
	s := tempLog(t)
	s.db.NoSync = true // the property is not durability
	rapid.Check(t, func(rt *rapid.T) {
		if last, _ := s.LastIndex(); last > 0 {
			if err := s.DeleteRange(0, last); err != nil {
				rt.Fatal(err)
			}
		}
		want := raft.NewInmemStore()
		next := rapid.Uint64Range(1, 1000).Draw(rt, "first")
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				var logs []*raft.Log
				for range rapid.IntRange(1, 8).Draw(rt, "entries") {
					logs = append(logs, &raft.Log{Index: next, Term: rapid.Uint64().Draw(rt, "term"), Data: rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(rt, "data")})
					next++
				}
				if err := errors.Join(s.StoreLogs(logs), want.StoreLogs(logs)); err != nil {
					rt.Fatal(err)
				}
			},
			"cut": func(rt *rapid.T) {
				first, _ := want.FirstIndex()
				last, _ := want.LastIndex()
				if last == 0 {
					return
				}
				lo, hi := first, rapid.Uint64Range(first, last).Draw(rt, "to")
				if rapid.Bool().Draw(rt, "end") {
					lo, hi = hi, last
					next = lo
				}
				if err := errors.Join(s.DeleteRange(lo, hi), want.DeleteRange(lo, hi)); err != nil {
					rt.Fatal(err)
				}
			},
			"overwrite": func(rt *rapid.T) {
				first, _ := want.FirstIndex()
				last, _ := want.LastIndex()
				if last == 0 {
					return
				}
				l := &raft.Log{Index: rapid.Uint64Range(first, last).Draw(rt, "index"), Term: 7, Type: raft.LogNoop}
				if err := errors.Join(s.StoreLog(l), want.StoreLog(l)); err != nil {
					rt.Fatal(err)
				}
			},
			"shrink": func(rt *rapid.T) {
				if rapid.IntRange(0, 9).Draw(rt, "seldom") > 0 { // it takes as long as a disk does
					return
				}
				if err := s.shrink(); err != nil {
					rt.Fatal(err)
				}
				s.db.NoSync = true
			},
			"": func(rt *rapid.T) {
				f1, _ := s.FirstIndex()
				l1, _ := s.LastIndex()
				f2, _ := want.FirstIndex()
				l2, _ := want.LastIndex()
				if f1 != f2 || l1 != l2 {
					rt.Fatalf("the log is %d to %d, want %d to %d", f1, l1, f2, l2)
				}
				for i := max(f2, 1) - 1; i <= l2+1; i++ {
					var a, b raft.Log
					if e1, e2 := s.GetLog(i, &a), want.GetLog(i, &b); !errors.Is(e1, e2) || !cmp.Equal(a, b) {
						rt.Fatalf("entry %d is %+v (%v), want %+v (%v)", i, a, e1, b, e2)
					}
				}
			},
		})
	})
}

func FuzzDecodeLog(f *testing.F) {
	f.Add(encodeLog(&raft.Log{Term: 3, Data: []byte("data"), Extensions: []byte("x"), AppendedAt: time.Unix(1, 2)}))
	f.Add([]byte{sealedFormat})
	f.Fuzz(func(t *testing.T, b []byte) {
		var l, again raft.Log
		if decodeLog(7, b, &l) != nil {
			return
		}
		if err := decodeLog(7, encodeLog(&l), &again); err != nil || !cmp.Equal(l, again) {
			t.Errorf("%+v became %+v (%v)", l, again, err)
		}
	})
}

func FuzzDecodeCommand(f *testing.F) {
	f.Add([]byte{cmdNoop})
	f.Add([]byte{cmdUser, 1, 2, 3})
	f.Add(memberCommand(memberRecord{ID: "n1", GRPC: "a:1", Voter: true}))
	f.Add(forgetCommand("n1"))
	f.Add([]byte{mayIgnore | 17})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeCommand(b)
		if err != nil {
			return
		}
		switch c.kind {
		case cmdUser:
			if string(c.user) != string(b[1:]) {
				t.Errorf("%q lost bytes: %q", b, c.user)
			}
		case cmdMember:
			if again, err := decodeCommand(memberCommand(c.member)); err != nil || again.member != c.member {
				t.Errorf("%+v became %+v (%v)", c.member, again.member, err)
			}
		case cmdForget:
			if c.forget == "" {
				t.Error("forgets nobody")
			}
		}
	})
}
