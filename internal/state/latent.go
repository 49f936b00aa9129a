package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/latent"
)

// Latent is an encoding of latent vectors (package latent) that is whole and
// replicated.
type Latent struct {
	SHA256  string    `json:"sha256"`
	Size    int64     `json:"size"`
	Stored  time.Time `json:"stored"`
	Holders []string  `json:"holders"`
	// Uses counts the chains whose state names it, Idle is since when none does, and
	// Used tells that one did.
	Uses int       `json:"uses,omitempty"`
	Idle time.Time `json:"idle,omitzero"`
	Used bool      `json:"used,omitempty"`
}

// ErrLatent is returned for a checkpoint that names latent vectors which are not
// kept: they have to be there before.
var ErrLatent = errors.New("the latent vectors that the checkpoint names are not kept")

// Latents calls f with all latent vectors, until it returns false.
func Latents(tx *bbolt.Tx, f func(*Latent) bool) error { return each(tx, latentsBucket, f) }

// GetLatent returns latent vectors, or ErrLatent.
func GetLatent(tx *bbolt.Tx, sha256 string) (*Latent, error) {
	var l Latent
	ok, err := getJSON(tx, latentsBucket, sha256, &l)
	if err == nil && !ok {
		err = ErrLatent
	}
	return &l, err
}

// idleKey orders what no chain uses: what none has used yet, then the rest, each by
// the time since when.
func (l *Latent) idleKey() []byte {
	return append(idleSince(l.Used, l.Idle), l.SHA256...)
}

func idleSince(used bool, t time.Time) []byte {
	kind := byte(0)
	if used {
		kind = 1
	}
	return binary.BigEndian.AppendUint64([]byte{kind}, uint64(t.UnixNano()))
}

// putLatent writes latent vectors that were as before says, nil if they are new.
func putLatent(tx *bbolt.Tx, before, l *Latent) error {
	idle := tx.Bucket(latentIdleBucket)
	if before != nil && before.Uses == 0 {
		if err := idle.Delete(before.idleKey()); err != nil {
			return err
		}
	}
	if l.Uses == 0 {
		if err := idle.Put(l.idleKey(), []byte{1}); err != nil {
			return err
		}
	}
	return putJSON(tx, latentsBucket, l.SHA256, l)
}

// RecordLatent notes latent vectors, or who holds them.
type RecordLatent struct {
	SHA256  string    `json:"sha256"`
	Size    int64     `json:"size"`
	Stored  time.Time `json:"stored"`
	Holders []string  `json:"holders"`
}

func (r *RecordLatent) format() uint64 { return 3 }

func (r *RecordLatent) apply(x *transaction) (*Job, error) {
	l := &Latent{SHA256: r.SHA256, Size: r.Size, Stored: r.Stored, Holders: r.Holders, Idle: x.time}
	if ref := (latent.Ref{SHA256: r.SHA256, Size: r.Size}); r.Size <= 0 || !ref.Sane(r.Size) {
		return nil, ErrMalformed
	}
	old, err := GetLatent(x.Tx, r.SHA256)
	switch {
	case err == nil:
		l.Uses, l.Used, l.Idle = old.Uses, old.Used, old.Idle
		if l.Uses == 0 && l.Stored.After(old.Stored) { // a chain is about to name it
			l.Used, l.Idle = false, x.time
		}
	case errors.Is(err, ErrLatent):
		old = nil
	default:
		return nil, err
	}
	return nil, errors.Join(putLatent(x.Tx, old, l), logLatent(x.Tx, r.SHA256))
}

// DropLatents forgets what no chain uses: what none has used yet since before
// Unused, and what none uses any more since before Superseded.
type DropLatents struct {
	Unused     time.Time `json:"unused"`
	Superseded time.Time `json:"superseded"`
}

func (d *DropLatents) format() uint64 { return 3 }

// dropMost bounds what one command forgets.
const dropMost = 1000

func (d *DropLatents) apply(x *transaction) (*Job, error) {
	due := d.due(x.Tx, dropMost)
	for _, key := range due {
		sha := string(key[9:])
		err := errors.Join(x.Bucket(latentIdleBucket).Delete(key), deleteKey(x.Tx, latentsBucket, sha), logLatent(x.Tx, sha))
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// Due reports whether there is something that d would forget.
func (d *DropLatents) Due(tx *bbolt.Tx) bool { return len(d.due(tx, 1)) > 0 }

func (d *DropLatents) due(tx *bbolt.Tx, most int) (keys [][]byte) {
	c := tx.Bucket(latentIdleBucket).Cursor()
	for _, used := range []bool{false, true} {
		from, to := idleSince(used, time.Unix(0, 0)), idleSince(used, d.Unused)
		if used {
			to = idleSince(used, d.Superseded)
		}
		for k, _ := c.Seek(from); k != nil && bytes.Compare(k, to) < 0 && len(keys) < most; k, _ = c.Next() {
			keys = append(keys, bytes.Clone(k))
		}
	}
	return keys
}

// Which latent vectors a job's chains go on from is kept by (job, place in
// chains.Run.Latents), so that a command changes what it has to and no more.

func latentUseKey(job string, place int) []byte {
	return append([]byte(job+"/"), numberKey(uint64(place))...)
}

// useLatents notes what the job's chains go on from.
func (u *jobUpdate) useLatents() error {
	if u.cached == nil || !u.cached.run.Plan.Latents() {
		return nil
	}
	for i, ref := range u.cached.run.Latents() {
		if err := u.use(latentUseKey(u.job.ID, i), ref); err != nil {
			return err
		}
	}
	return nil
}

// use makes ref what a place goes on from.
func (x *transaction) use(place []byte, ref latent.Ref) error {
	uses := x.Bucket(latentUsesBucket)
	old := string(uses.Get(place))
	if old == ref.SHA256 {
		return nil
	}
	if !ref.IsZero() {
		l, err := GetLatent(x.Tx, ref.SHA256)
		if err != nil {
			return err
		}
		if l.Size != ref.Size {
			return fmt.Errorf("%w: %s has %d bytes, not %d", ErrMalformed, ref.SHA256, l.Size, ref.Size)
		}
		before := *l
		l.Uses, l.Used, l.Idle = l.Uses+1, true, time.Time{}
		if err := errors.Join(putLatent(x.Tx, &before, l), uses.Put(place, []byte(ref.SHA256))); err != nil {
			return err
		}
	} else if err := uses.Delete(place); err != nil {
		return err
	}
	if old == "" {
		return nil
	}
	l, err := GetLatent(x.Tx, old)
	if err != nil {
		return err
	}
	before := *l
	if l.Uses--; l.Uses == 0 {
		l.Idle = x.time
	}
	return putLatent(x.Tx, &before, l)
}

// leaveLatents notes that nobody goes on from what a job's chains name.
func (x *transaction) leaveLatents(job string) error {
	var places [][]byte
	prefix, c := []byte(job+"/"), x.Bucket(latentUsesBucket).Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		places = append(places, bytes.Clone(k))
	}
	for _, p := range places {
		if err := x.use(p, latent.Ref{}); err != nil {
			return err
		}
	}
	return nil
}

// LatentMark is a place in the log of what was recorded and forgotten.
type LatentMark struct {
	number uint64
	sha256 string
}

// latentLogKept is how many entries of that log are kept: who comes later has to
// look at everything.
const latentLogKept = 4096

// logLatent notes that something was recorded or forgotten.
func logLatent(tx *bbolt.Tx, sha256 string) error {
	b := tx.Bucket(latentLogBucket)
	n, err := b.NextSequence()
	if err != nil {
		return err
	}
	if err := b.Put(numberKey(n), []byte(sha256)); err != nil || n <= latentLogKept {
		return err
	}
	return b.Delete(numberKey(n - latentLogKept))
}

// LatentChanges returns the addresses that were recorded or forgotten after a mark,
// and where the log ends; false if that cannot be told.
func LatentChanges(tx *bbolt.Tx, after LatentMark) (changed []string, end LatentMark, ok bool) {
	b := tx.Bucket(latentLogBucket)
	c := b.Cursor()
	if k, v := c.Last(); k != nil {
		end = LatentMark{binary.BigEndian.Uint64(k), string(v)}
	}
	if after == (LatentMark{}) || string(b.Get(numberKey(after.number))) != after.sha256 {
		return nil, end, false
	}
	for k, v := c.Seek(numberKey(after.number + 1)); k != nil; k, v = c.Next() {
		changed = append(changed, string(v))
	}
	return changed, end, true
}
