// Package history holds this version to what earlier ones left behind: the log of a
// coordinator is replayed to the state that the release came to, and runs that were
// interrupted come to their end with the draws that they would have had.
//
// testdata has a folder for each release, recorded by hack/history.sh. Before a release
// (CONTRIBUTING.md) one is added. None is ever changed: if a test here fails, whoever
// upgrades loses something.
package history

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ulisse-gp/ulisse/internal/cli/clitest"
	"github.com/ulisse-gp/ulisse/internal/cluster"
	"github.com/ulisse-gp/ulisse/internal/state"
	"github.com/ulisse-gp/ulisse/internal/version"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// history is what history.json of a release says.
type history struct {
	dir            string
	InstructionSet string            `json:"instruction_set"`
	Draws          map[string]string `json:"draws_sha256"` // by name of the run
}

// releases calls f for each release that is recorded.
func releases(t *testing.T, f func(t *testing.T, h history)) {
	files, err := filepath.Glob("testdata/*/history.json")
	if err != nil || len(files) == 0 {
		t.Fatal("nothing is recorded", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		h := history{dir: filepath.Dir(file)}
		if err == nil {
			err = json.Unmarshal(text, &h)
		}
		if err != nil {
			t.Fatal(file, err)
		}
		t.Run(filepath.Base(h.dir), func(t *testing.T) { f(t, h) })
	}
}

// unpack writes the files of a record into a folder of the test's.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	dir := t.TempDir()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err == nil && !filepath.IsLocal(h.Name) {
			err = errors.New("a path that leads out: " + h.Name)
		}
		path := filepath.Join(dir, h.Name)
		if err == nil && h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else if err == nil {
			var text []byte
			if text, err = io.ReadAll(in); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o600))
			}
		}
		if err != nil {
			t.Fatal(archive, err)
		}
	}
}

// contents returns all keys and values of the state machine, by path; what the cluster
// keeps of its own (package cluster) is left out.
func contents(tx *bbolt.Tx) map[string]string {
	out := map[string]string{}
	var walk func(path string, b *bbolt.Bucket)
	walk = func(path string, b *bbolt.Bucket) {
		_ = b.ForEach(func(k, v []byte) error { // it fails if the function does
			if v == nil {
				walk(path+"/"+string(k), b.Bucket(k))
			} else {
				out[path+"/"+string(k)] = string(v)
			}
			return nil
		})
	}
	_ = tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		if !bytes.HasPrefix(name, []byte("_")) {
			walk(string(name), b)
		}
		return nil
	})
	return out
}

// The log of a release's coordinator, replayed by this version from its first entry,
// gives the state that the release had: every key, every byte. (A later version may
// keep more, in buckets of its own.)
func TestReplay(t *testing.T) {
	releases(t, func(t *testing.T, h history) {
		dir := filepath.Join(unpack(t, filepath.Join(h.dir, "cluster.tar.gz")), "raft")
		theirs := filepath.Join(t.TempDir(), "state.db")
		if err := os.Rename(filepath.Join(dir, "state.db"), theirs); err != nil {
			t.Fatal(err)
		}
		db, err := bbolt.Open(theirs, 0o600, &bbolt.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var want map[string]string
		if err := db.View(func(tx *bbolt.Tx) error { want = contents(tx); return nil }); err != nil {
			t.Fatal(err)
		}
		got := replayed(t, dir, len(want))
		for key, value := range want {
			if got[key] != value {
				t.Errorf("%q: %.200q, was %.200q", key, got[key], value)
			}
		}
		for key := range got {
			if _, ok := want[key]; !ok && has(want, bucketOf(key)) {
				t.Errorf("%q was not there", key)
			}
		}
		for _, bucket := range []string{"jobs", "events", "tokens", "notes"} {
			if !has(want, bucket) {
				t.Errorf("the record has nothing in %s: it holds this version to little", bucket)
			}
		}
	})
}

func bucketOf(key string) string {
	bucket, _, _ := strings.Cut(key, "/")
	return bucket
}

func has(contents map[string]string, bucket string) bool {
	for key := range contents {
		if bucketOf(key) == bucket {
			return true
		}
	}
	return false
}

// replayed opens a coordinator's folder that has a log and no state, and returns the
// state once all of the log is applied.
func replayed(t *testing.T, dir string, keys int) map[string]string {
	t.Helper()
	leads := make(chan struct{})
	n, err := cluster.Open(cluster.Config{ID: "coordinator-1", Dir: dir, Machine: state.NewMachine(), Listener: bufconn.Listen(1 << 16),
		Advertise: "history:1", Version: version.Version, Format: state.Format, HeartbeatTimeout: 100 * time.Millisecond,
		Lead: func(ctx context.Context) { close(leads); <-ctx.Done() }})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	select {
	case <-leads: // then all that was committed before is applied
	case <-time.After(time.Minute):
		t.Fatal("the node does not lead")
	}
	var got map[string]string
	if err := n.View(func(tx *bbolt.Tx) error { got = contents(tx); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(got) < keys {
		t.Errorf("%d keys, there were %d", len(got), keys)
	}
	return got
}

// A run that an earlier release began and this version ends has the draws that the
// release would have made; so has one whose state is made anew of its log.
func TestGoOn(t *testing.T) {
	program := clitest.Program(t)
	releases(t, func(t *testing.T, h history) {
		if now := "portable/" + version.Rounding(); now != h.InstructionSet {
			t.Skipf("its runs are of %s, this program computes with %s: such runs are ended by the version that began them", h.InstructionSet, now)
		}
		for name, want := range h.Draws {
			for _, anew := range []bool{false, true} {
				if anew && testing.Short() {
					continue
				}
				dir := filepath.Join(unpack(t, filepath.Join(h.dir, name+".tar.gz")), name)
				if anew {
					if err := os.Remove(filepath.Join(dir, "state", "raft", "state.db")); err != nil {
						t.Fatal(err)
					}
				}
				cmd := exec.CommandContext(t.Context(), program, "run", "--resume", dir, "-q")
				cmd.Env = append(os.Environ(), "ULISSE_ISA=portable")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s, state anew %v: %v\n%s", name, anew, err, out)
				}
				text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
				var sum struct {
					DrawsSHA256 string `json:"draws_sha256"`
				}
				if err == nil {
					err = json.Unmarshal(text, &sum)
				}
				if err != nil || sum.DrawsSHA256 != want {
					t.Errorf("%s, state anew %v: draws %q, want %q; %v", name, anew, sum.DrawsSHA256, want, err)
				}
			}
		}
	})
}
