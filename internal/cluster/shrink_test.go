package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/failpoint"
)

// A state shrinks while it is read and entries are applied; a crash at any step leaves a state with all of
// them.
func TestStateShrinks(t *testing.T) {
	s := tempState(t, sealed{})
	index := uint64(0)
	apply := func(n int, text string) {
		t.Helper()
		var logs []*raft.Log
		for range n {
			index++
			logs = append(logs, entries(index, fmt.Sprintf("%d %s", index, text))...)
		}
		for _, r := range s.apply(logs) {
			if err, bad := r.(error); bad {
				t.Fatal(err)
			}
		}
	}
	contents := func(s *state) string {
		t.Helper()
		var b strings.Builder
		err := s.view(func(tx *bbolt.Tx) error {
			return tx.Bucket(sealedBucket).ForEach(func(k, v []byte) error {
				v, err := unseal(k, v)
				fmt.Fprintf(&b, "%s=%.20s;", k, v)
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	apply(300, strings.Repeat("x", 10_000))
	apply(300, "small")
	want := contents(s)
	before, err := os.Stat(s.path)
	if err != nil {
		t.Fatal(err)
	}
	reading, read := make(chan struct{}), make(chan error)
	release := make(chan struct{})
	go func() {
		read <- s.view(func(tx *bbolt.Tx) error {
			close(reading)
			<-release
			if tx.Bucket(sealedBucket).Stats().KeyN != 300 {
				return fmt.Errorf("%d keys", tx.Bucket(sealedBucket).Stats().KeyN)
			}
			return nil
		})
	}()
	<-reading
	crashed := map[string]string{} // what a crash would leave, by its point
	failpoint.Hook = func(point string) {
		if strings.HasPrefix(point, "state shrink") || point == "folder sync" {
			crashed[point] = copyTree(t, filepath.Dir(s.path))
		}
	}
	err = s.shrink()
	failpoint.Hook = nil
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(s.path)
	if err != nil || after.Size() > before.Size()/4 {
		t.Errorf("%d bytes of %d (%v)", after.Size(), before.Size(), err)
	}
	if got := contents(s); got != want {
		t.Error("it holds something else")
	}
	close(release)
	if err := <-read; err != nil {
		t.Errorf("who was reading: %v", err)
	}
	apply(10, "after")
	if pos, _ := s.applied(); pos.index != 610 {
		t.Errorf("at %d", pos.index)
	}
	if left, _ := filepath.Glob(s.path + ".*"); len(left) > 0 {
		t.Error("left behind:", left)
	}
	if len(crashed) != 3 {
		t.Errorf("%d points", len(crashed))
	}
	for point, dir := range crashed {
		s, err := openState(filepath.Join(dir, filepath.Base(s.path)), sealed{}, 1)
		if err != nil {
			t.Errorf("after a crash at %q: %v", point, err)
			continue
		}
		if pos, _ := s.applied(); pos.index != 600 || contents(s) != want {
			t.Errorf("after a crash at %q: at %d, or it holds something else", point, pos.index)
		}
		s.close()
	}
}

// roomy is a chain that is told to take much room, and to free it.
type roomy struct{ *chain }

var roomyBucket = []byte("roomy")

func (r roomy) Init(tx *bbolt.Tx) error {
	_, err := tx.CreateBucketIfNotExists(roomyBucket)
	return errors.Join(err, r.chain.Init(tx))
}

func (r roomy) Apply(tx *bbolt.Tx, index uint64, cmd []byte) any {
	var err error
	switch {
	case bytes.HasPrefix(cmd, []byte("fill")):
		err = tx.Bucket(roomyBucket).Put([]byte("much"), make([]byte, 40<<20))
	case bytes.HasPrefix(cmd, []byte("free")):
		err = tx.Bucket(roomyBucket).Delete([]byte("much"))
	}
	if err != nil {
		return err
	}
	return r.chain.Apply(tx, index, cmd)
}

// Members whose files are mostly free make them smaller, one after the other the leader too, while commands
// go on.
func TestMembersShrink(t *testing.T) {
	t.Parallel()
	tc := newCluster(t, 3, func(c *Config) {
		c.Machine, c.CheckEvery, c.shrinkFrom = roomy{&chain{}}, 4*testHeartbeat, 32<<20
	})
	sizes := func() (least, most int64) {
		least = 1 << 40
		for _, m := range tc.live() {
			st, err := os.Stat(m.state.path)
			if err != nil {
				t.Fatal(err)
			}
			least, most = min(least, st.Size()), max(most, st.Size())
		}
		return least, most
	}
	tc.leader().write(t, "fill", 1)
	eventually(t, "large files", func() bool { least, _ := sizes(); return least > 40<<20 })
	tc.leader().write(t, "free", 1)
	eventually(t, "small files", func() bool {
		tc.commands("meanwhile", 1)
		_, most := sizes()
		return most < 32<<20 // bbolt grows a file by 16 MiB at once
	})
	tc.commands("after", 5)
	tc.agree()
}
