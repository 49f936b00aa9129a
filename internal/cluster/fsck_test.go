package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
)

// contentsOf returns what a bbolt file holds, as bbolt says.
func contentsOf(t *testing.T, path string) (out []string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var walk func(at string, b *bbolt.Bucket) error
	walk = func(at string, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if v == nil {
				return walk(at+string(k)+"/", b.Bucket(k))
			}
			out = append(out, fmt.Sprintf("%s%s=%x", at, k, v))
			return nil
		})
	}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return walk(string(name)+"/", b) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func looked(path string) (out []string, halves int, err error) {
	is, err := lookThrough(path, func(path [][]byte, key, value []byte) error {
		at := ""
		for _, p := range path {
			at += string(p) + "/"
		}
		out = append(out, fmt.Sprintf("%s%s=%x", at, key, value))
		return nil
	})
	return out, is.halves, err
}

// someFile writes a bbolt file with buckets within buckets, large values, and what
// deletions leave.
func someFile(t *testing.T, seed uint64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := openBolt(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 12 {
		err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(fmt.Appendf(nil, "bucket-%d", r.IntN(4)))
			for depth := r.IntN(3); err == nil && depth > 0; depth-- {
				b, err = b.CreateBucketIfNotExists(fmt.Appendf(nil, "within-%d", r.IntN(3)))
			}
			for range r.IntN(60) {
				key := fmt.Appendf(nil, "key-%d", r.IntN(3000))
				if r.IntN(3) == 0 {
					err = errors.Join(err, b.Delete(key))
					continue
				}
				err = errors.Join(err, b.Put(key, bytes.Repeat([]byte{byte(r.IntN(256))}, []int{0, 3, 100, 9000}[r.IntN(4)])))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// A file is read as bbolt reads it.
func TestLookThrough(t *testing.T) {
	for seed := range uint64(8) {
		path := someFile(t, seed)
		want := contentsOf(t, path)
		got, halves, err := looked(path)
		if err != nil || halves != 2 || !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d entries of %d, %d meta pages, %v", seed, len(got), len(want), halves, err)
		}
	}
}

// A bit that flips anywhere is found, or changes nothing but contents, which carry
// checksums of their own, and the numbers of sequences, which nobody uses.
func TestLookThroughFlips(t *testing.T) {
	path := someFile(t, 3)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := looked(path)
	r := rand.New(rand.NewPCG(1, 2))
	found, unseen, changed := 0, 0, 0
	broken := filepath.Join(t.TempDir(), "broken.db")
	for range 500 {
		bit := r.IntN(8 * len(text))
		if r.IntN(2) == 0 { // near the head of a page, where most can go wrong
			bit = 8*4096*r.IntN(len(text)/4096) + r.IntN(8*256)
		}
		text[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(broken, text, 0o600); err != nil {
			t.Fatal(err)
		}
		text[bit/8] ^= 1 << (bit % 8)
		got, halves, err := looked(broken)
		switch {
		case err != nil && !errors.Is(err, ErrDamaged):
			t.Fatalf("bit %d: %v", bit, err)
		case err != nil || halves < 2:
			found++
		case slices.Equal(got, want):
			unseen++ // where nothing is
		default:
			if len(got) != len(want) {
				t.Fatalf("bit %d: %d entries of %d", bit, len(got), len(want))
			}
			changed++
		}
	}
	t.Logf("of 500 flips %d are found by the pages, %d change a key or a value, %d nothing", found, changed, unseen)
	if found == 0 || changed == 0 {
		t.Error("a test that tests nothing")
	}
	// Cut off, or none.
	for _, n := range []int{0, 10, 5000, len(text) / 2} {
		if err := os.WriteFile(broken, text[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := looked(broken); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes of the file: %v", n, err)
		}
	}
}
