package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
)

// keepSmall gives the disk back what the state's file does not need any more: deleting frees pages of a
// bbolt file, which itself never gets smaller. Entries wait to be applied meanwhile, but not to be
// committed; so a leader lets another one lead first.
func (n *Node) keepSmall() {
	for n.cfg.CheckEvery > 0 && sleep(n.ctx, n.cfg.CheckEvery) {
		if err := n.shrinkState(); err != nil && n.ctx.Err() == nil {
			n.log.Warn("the state's file is mostly free, and was not made smaller", "error", err)
		}
	}
}

func (n *Node) shrinkState() error {
	from := n.cfg.shrinkFrom
	if from == 0 {
		from = shrinkFrom
	}
	st, err := os.Stat(n.state.path)
	if err != nil || st.Size() < from {
		return err
	}
	g, err := n.state.acquire()
	if err != nil {
		return err
	}
	s := g.db.Stats()
	g.readers.Done()
	if int64(s.FreeAlloc) <= st.Size()/2 {
		return nil
	}
	if n.IsLeader() && n.replaceable() {
		return n.Transfer(n.ctx, "") // and this one's turn is the next time
	}
	if err := n.state.shrink(); err != nil {
		return err
	}
	if now, err := os.Stat(n.state.path); err == nil {
		n.log.Info("the state's file was mostly free, and is smaller", "file", n.state.path, "from", st.Size(), "to", now.Size())
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
	small, err := openBolt(tmp, 0)
	if err != nil {
		return err
	}
	if err = bbolt.Compact(small, s.cur.db, 64<<20); err == nil {
		err = small.Sync()
	}
	if err = errors.Join(err, small.Close()); err != nil {
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
