package cluster

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// sealed is a machine whose values carry checksums.
type sealed struct{}

var sealedBucket = []byte("sealed")

func (sealed) Init(tx *bbolt.Tx) error {
	_, err := tx.CreateBucketIfNotExists(sealedBucket)
	return err
}

func (sealed) Apply(tx *bbolt.Tx, index uint64, cmd []byte) any {
	key := fmt.Appendf(nil, "%d", index%300)
	return tx.Bucket(sealedBucket).Put(key, seal(key, cmd))
}

func (sealed) Verify(path [][]byte, key, value []byte) error {
	if len(path) != 1 || !bytes.Equal(path[0], sealedBucket) {
		return errors.New("there is no such bucket")
	}
	_, err := unseal(key, value)
	return err
}

// contents is a hash of all that a machine of the kind holds.
func (sealed) contents(n *Node) (string, error) {
	h := sha256.New()
	err := n.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(sealedBucket).ForEach(func(k, v []byte) error {
			v, err := unseal(k, v)
			fmt.Fprintf(h, "%q %x\n", k, v)
			return err
		})
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

func alone(t *testing.T, dir string) Config {
	t.Helper()
	return Config{ID: "alone", Dir: dir, Machine: sealed{}, Listener: listen(t, "127.0.0.1:0"), Advertise: "127.0.0.1:1", BootstrapExpect: 1,
		HeartbeatTimeout: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), SnapshotThreshold: 1 << 40, TrailingLogs: 100}
}

// copyTree copies the files of a folder.
func copyTree(t *testing.T, from string) (to string) {
	t.Helper()
	to = t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// A bit that flips in any file of a node that is stopped is found, and the node
// says so and does not start, or goes on with all that was acknowledged. Never does
// it go on with anything else. ULISSE_ROT says how many bits of each file (10
// unless told).
func TestBitRot(t *testing.T) {
	t.Parallel()
	flips := 10
	if text := os.Getenv("ULISSE_ROT"); text != "" {
		flips, _ = strconv.Atoi(text)
	}
	good := filepath.Join(t.TempDir(), "good")
	n, err := Open(alone(t, good))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a leader", func() bool { _, err := n.ReadIndex(t.Context()); return err == nil })
	for i := range 700 {
		if _, _, err := n.Apply(t.Context(), fmt.Appendf(nil, "command-%d-%s", i, strings.Repeat("x", i%90))); err != nil {
			t.Fatal(err)
		}
		if i == 300 || i == 500 {
			if err := n.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, err := sealed{}.contents(n)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	var files []string
	err = filepath.WalkDir(good, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			name, _ := filepath.Rel(good, path)
			files = append(files, name)
		}
		return err
	})
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(good, name))
		if err != nil {
			t.Fatal(err)
		}
		refused, survived := 0, 0
		for range flips {
			bit := r.IntN(8 * len(text))
			for tries := 0; text[bit/8] == 0 && tries < 1000; tries++ { // where something is
				bit = r.IntN(8 * len(text))
			}
			dir := copyTree(t, good)
			text[bit/8] ^= 1 << (bit % 8)
			err := os.WriteFile(filepath.Join(dir, name), text, 0o600)
			text[bit/8] ^= 1 << (bit % 8)
			if err != nil {
				t.Fatal(err)
			}
			n, err := Open(alone(t, dir))
			if err != nil {
				refused++
				if !errors.Is(err, ErrDamaged) && !strings.Contains(err.Error(), "delete the whole directory") && !strings.Contains(err.Error(), "written by a newer version") {
					t.Errorf("%s, bit %d: it does not say what is wrong: %v", name, bit, err)
				}
				continue
			}
			eventually(t, fmt.Sprintf("a leader with a flip in %s, bit %d", name, bit), func() bool { _, err := n.ReadIndex(t.Context()); return err == nil })
			got, err := sealed{}.contents(n)
			if err != nil || got != want {
				t.Errorf("%s, bit %d: it goes on with another state (%v)", name, bit, err)
			}
			if _, _, err := n.Apply(t.Context(), []byte("more")); err != nil {
				t.Errorf("%s, bit %d: %v", name, bit, err)
			}
			survived++
			if err := n.Close(); err != nil {
				t.Errorf("%s, bit %d: closing: %v", name, bit, err)
			}
		}
		t.Logf("%-45s refused %d times, went on with everything %d times", name, refused, survived)
	}
}

// A log that is damaged is done without, by somebody's will: the state has all that
// was acknowledged.
func TestRecoverWithoutLog(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "alone")
	n, err := Open(alone(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a leader", func() bool { _, err := n.ReadIndex(t.Context()); return err == nil })
	for i := range 50 {
		if _, _, err := n.Apply(t.Context(), fmt.Appendf(nil, "command-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := sealed{}.contents(n)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, logFile)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(text, []byte("command-49"))
	for j := i; j >= 0; { // every copy of it
		text[j] ^= 1
		next := bytes.Index(text[j+1:], []byte("command-49"))
		if next < 0 {
			break
		}
		j += next + 1
	}
	if err := os.WriteFile(log, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := Open(alone(t, dir)); !errors.Is(err, ErrDamaged) {
		if err == nil {
			n.Close()
		}
		t.Fatalf("a damaged log: %v", err)
	}
	cfg := alone(t, dir)
	cfg.Listener.Close()
	if err := Recover(cfg, []Server{{"alone", "127.0.0.1:1"}}); err != nil {
		t.Fatal(err)
	}
	if n, err = Open(alone(t, dir)); err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	eventually(t, "a leader", func() bool { _, err := n.ReadIndex(t.Context()); return err == nil })
	if got, err := (sealed{}).contents(n); err != nil || got != want {
		t.Errorf("the state is another (%v)", err)
	}
	if _, _, err := n.Apply(t.Context(), []byte("more")); err != nil {
		t.Error(err)
	}
}
