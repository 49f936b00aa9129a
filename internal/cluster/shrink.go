package cluster

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
)

// keepSmall gives the disk back what the files of state and log do not need any more: deleting frees pages
// of a bbolt file, which itself never gets smaller. Meanwhile entries wait to be applied, or to be
// written; so a leader lets another one lead first.
func (n *Node) keepSmall() {
	for n.cfg.CheckEvery > 0 && sleep(n.ctx, n.cfg.CheckEvery) {
		for _, shrink := range []func() error{n.shrinkState, n.shrinkLog} {
			if err := shrink(); err != nil && n.ctx.Err() == nil {
				n.log.Warn("a file is mostly free, and was not made smaller", "error", err)
			}
		}
	}
}

func (n *Node) shrinkState() error {
	g, err := n.state.acquire()
	if err != nil {
		return err
	}
	s := g.db.Stats()
	g.readers.Done()
	return n.shrinkFile(n.state.path, int64(s.FreeAlloc), math.MaxInt64, n.state.shrink)
}

// shrinkAtOnce bounds what is used of a log that is copied while nothing is written to it, in bytes. A larger
// one gets smaller at the next start.
const shrinkAtOnce = 256 << 20

func (n *Node) shrinkLog() error {
	s := n.store.stats()
	return n.shrinkFile(n.store.path, int64(s.FreeAlloc), shrinkAtOnce, n.store.shrink)
}

// shrinkFile makes a file smaller that is large and mostly free, but uses no more than some bytes.
func (n *Node) shrinkFile(path string, free, most int64, shrink func() error) error {
	from := n.cfg.shrinkFrom
	if from == 0 {
		from = shrinkFrom
	}
	st, err := os.Stat(path)
	if err != nil || st.Size() < from || free <= st.Size()/2 || st.Size()-free > most {
		return err
	}
	if n.IsLeader() && n.replaceable() {
		return n.Transfer(n.ctx, "") // and this one's turn is the next time
	}
	if err := shrink(); err != nil {
		return err
	}
	if now, err := os.Stat(path); err == nil {
		n.log.Info("a file was mostly free, and is smaller", "file", path, "from", st.Size(), "to", now.Size())
	}
	return nil
}

// shrink puts a copy of what is used in place of the file.
func (s *state) shrink() error {
	s.applying.Lock()
	defer s.applying.Unlock()
	tmp := s.path + smallMark
	defer os.Remove(tmp) // gone by then unless something failed
	if err := s.seam.at("state shrink"); err != nil {
		return err
	}
	if err := copyUsed(tmp, s.cur.db); err != nil {
		return err
	}
	db, pos, err := s.open(tmp, position{})
	if err != nil {
		return err
	}
	if pos != s.pos {
		err = fmt.Errorf("cluster: a copy of the state at %d says that it is at %d", s.pos.index, pos.index)
	}
	if err == nil {
		err = s.seam.at("state shrink rename")
	}
	if err == nil {
		err = errors.Join(os.Rename(tmp, s.path), atomicfile.SyncDir(filepath.Dir(s.path)))
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	s.moved(pos, &generation{db: db})
	return nil
}

// shrink puts a copy of what is used in place of the file, while nobody reads or writes. If it is not
// known which of the two would be there after a loss of power, nothing may be written any more.
func (s *logStore) shrink() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	tmp := s.path + smallMark
	defer os.Remove(tmp) // gone by then unless something failed
	if err := s.seam.at("log shrink"); err != nil {
		return err
	}
	if err := copyUsed(tmp, s.db); err != nil {
		return err
	}
	db, err := openBolt(tmp, 0)
	if err != nil {
		return err
	}
	if err = s.seam.at("log shrink rename"); err == nil {
		err = os.Rename(tmp, s.path)
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	old := s.db
	s.db = db
	if s.lost = atomicfile.SyncDir(filepath.Dir(s.path)); s.lost != nil {
		s.lost = fmt.Errorf("cluster: %s was made smaller, and may not be the one that is there after a loss of power: %w", s.path, s.lost)
	}
	return errors.Join(s.lost, old.Close())
}
