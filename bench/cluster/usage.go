package main

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"go.etcd.io/bbolt"
)

// usage is what a database holds.
type usage struct{ entries, bytes, largest, pages int }

// usageOf reads the database of a node that is closed.
func usageOf(path string) (u usage, err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return u, err
	}
	defer db.Close()
	var walk func(b *bbolt.Bucket) error
	walk = func(b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if v == nil {
				return walk(b.Bucket(k))
			}
			u.entries++
			u.bytes += len(k) + len(v)
			u.largest = max(u.largest, len(v))
			return nil
		})
	}
	err = db.View(func(tx *bbolt.Tx) error {
		u.pages = int(tx.Size())
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error { return walk(b) })
	})
	return u, err
}

// tell prints what the log and the state of a closed node take.
func tell(dir string, draws int) error {
	for _, name := range []string{"raft.db", "state.db"} {
		u, err := usageOf(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Printf("  %-8s  %d entries, the largest of %.1f kB; %.1f kB per 1,000 draws; a file of %.1f MB\n",
			name, u.entries, 1e-3*float64(u.largest), float64(u.bytes)/float64(draws), 1e-6*float64(u.pages))
	}
	return nil
}

// size returns the megabytes of the files in a folder.
func size(dir string) float64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if i, err := d.Info(); err == nil {
				sum += i.Size()
			}
		}
		return nil
	})
	return 1e-6 * float64(sum)
}
