package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ulisse-gp/ulisse/internal/client"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// fake is a cluster in memory, which remembers the order of what it is asked.
type fake struct {
	state  string
	tables map[string]string // by address
	asked  []string
	fail   string // of a call: it gives up in the middle

	latents map[string]string // by address
	stale   int
}

func address(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

func (f *fake) Backup(_ context.Context, w io.Writer) (int64, error) {
	f.asked = append(f.asked, "backup")
	n, err := io.WriteString(w, f.state)
	return int64(n), err
}

func (f *fake) Blobs(context.Context) ([]*pb.Blob, error) {
	f.asked = append(f.asked, "list")
	out := []*pb.Blob{{Sha256: address("half"), Size: 10, Present: 3}, {Sha256: address("deleted meanwhile"), Size: 17, Complete: true}}
	for sha, text := range f.tables {
		out = append(out, &pb.Blob{Sha256: sha, Size: int64(len(text)), Complete: true, Jobs: []string{"j"}})
	}
	return out, nil
}

func (f *fake) Download(_ context.Context, sha string, w io.Writer) (int64, error) {
	text, ok := f.tables[sha]
	if !ok {
		return 0, &client.Error{Code: codes.NotFound, Message: "no coordinator has it"}
	}
	f.asked = append(f.asked, "download "+text)
	if f.fail == text {
		_, _ = io.WriteString(w, text[:2])
		return 2, errors.New("cut off")
	}
	n, err := io.WriteString(w, text)
	return int64(n), err
}

func (f *fake) UploadFile(_ context.Context, path string, _ func(int64, int64)) (*pb.Blob, error) {
	b, err := os.ReadFile(path)
	f.asked = append(f.asked, "upload "+string(b))
	return &pb.Blob{}, err
}

func (f *fake) Restore(_ context.Context, r io.Reader) (*pb.MembersResponse, error) {
	b, err := io.ReadAll(r)
	f.asked = append(f.asked, "restore "+string(b))
	return &pb.MembersResponse{}, err
}

// store is that of the fake's latent vectors. As many lists as stale says name
// some that are gone when they are asked for.
type store struct{ f *fake }

func (f *fake) vectors() store { return store{f} }

func (s store) Blobs(context.Context) (out []*pb.Blob, err error) {
	if s.f.stale > 0 {
		s.f.stale--
		return []*pb.Blob{{Sha256: address("superseded"), Size: 10, Complete: true}}, nil
	}
	for sha, text := range s.f.latents {
		out = append(out, &pb.Blob{Sha256: sha, Size: int64(len(text)), Complete: true})
	}
	return out, nil
}

func (s store) Download(_ context.Context, sha string, w io.Writer) (int64, error) {
	text, ok := s.f.latents[sha]
	if !ok {
		return 0, &client.Error{Code: codes.NotFound, Message: "no coordinator has it"}
	}
	s.f.asked = append(s.f.asked, "vectors "+text)
	n, err := io.WriteString(w, text)
	return int64(n), err
}

func (s store) UploadFile(_ context.Context, path string, _ func(int64, int64)) (*pb.Blob, error) {
	b, err := os.ReadFile(path)
	s.f.asked = append(s.f.asked, "upload vectors "+string(b))
	return &pb.Blob{}, err
}

func (f *fake) did() string {
	s := strings.Join(f.asked, ", ")
	f.asked = nil
	return s
}

func add(t *testing.T, dir Folder, c *fake, day int) *Copy {
	t.Helper()
	copied, _, err := dir.Add(t.Context(), c, c.vectors(), time.Date(2026, 1, day, 3, 17, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

// Three nights: only new tables are moved, old copies go with the tables that
// only they need, and each copy that is left can be restored.
func TestNights(t *testing.T) {
	dir := Folder(filepath.Join(t.TempDir(), "new"))
	c := &fake{state: "one", tables: map[string]string{address("A"): "A"}}
	add(t, dir, c, 1)
	if got := c.did(); got != "backup, list, download A" {
		t.Errorf("the first night: %s", got)
	}
	c.state, c.tables[address("B")] = "two", "B"
	add(t, dir, c, 2)
	if got := c.did(); got != "backup, list, download B" {
		t.Errorf("the second night: %s", got)
	}
	c.state, c.tables = "three", map[string]string{address("B"): "B"}
	add(t, dir, c, 3)
	if got := c.did(); got != "backup, list" {
		t.Errorf("the third night: %s", got)
	}
	if err := dir.Keep(2); err != nil {
		t.Fatal(err)
	}
	restored := func(name, want string) {
		t.Helper()
		copied, err := dir.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		into := &fake{}
		if _, err := dir.Restore(t.Context(), into, into.vectors(), copied); err != nil || into.did() != want {
			t.Errorf("%s restored: %s, %v", name, want, err)
		}
	}
	restored("", "upload B, restore three")
	if copied, err := dir.Find("20260102T031700Z"); err != nil || len(copied.Tables) != 2 {
		t.Errorf("%+v, %v", copied, err)
	}
	if _, err := dir.Find("20260101T031700Z"); err == nil || !strings.Contains(err.Error(), "20260102T031700Z, 20260103T031700Z") {
		t.Errorf("a copy that was removed: %v", err)
	}
	if err := dir.Keep(1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir.table(address("A"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a table that no copy needs is kept: %v", err)
	}
	restored("20260103T031700Z", "upload B, restore three")
	info, err := os.Stat(dir.state("20260103T031700Z"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the state, which holds keys: %v, %v", info.Mode(), err)
	}
}

// What is cut short is no copy, and the next one begins with a whole table.
func TestCutShort(t *testing.T) {
	dir := Folder(t.TempDir())
	c := &fake{state: "one", tables: map[string]string{address("table"): "table"}, fail: "table"}
	if _, _, err := dir.Add(t.Context(), c, c.vectors(), time.Unix(0, 0)); err == nil {
		t.Fatal("a table that was cut off is taken")
	}
	if _, err := dir.Find(""); err == nil || !strings.Contains(err.Error(), "there is no backup in") {
		t.Errorf("half a copy: %v", err)
	}
	c.fail = ""
	copied := add(t, dir, c, 1)
	if b, err := os.ReadFile(dir.table(address("table"))); err != nil || string(b) != "table" || len(copied.Tables) != 1 {
		t.Errorf("%q, %v", b, err)
	}
}

// A copy that is not what was written changes nothing.
func TestDamaged(t *testing.T) {
	for name, spoil := range map[string]func(Folder, *Copy) error{
		"state":   func(f Folder, c *Copy) error { return os.WriteFile(f.state(c.Name), []byte("two"), 0o600) },
		"table":   func(f Folder, c *Copy) error { return os.WriteFile(f.table(c.Tables[0].SHA256), []byte("B"), 0o600) },
		"missing": func(f Folder, c *Copy) error { return os.Remove(f.table(c.Tables[0].SHA256)) },
		"manifest": func(f Folder, c *Copy) error {
			text, err := os.ReadFile(f.manifest(c.Name))
			return errors.Join(err, os.WriteFile(f.manifest(c.Name), bytes.Replace(text, []byte(`"format":2`), []byte(`"format":9`), 1), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := Folder(t.TempDir())
			c := &fake{state: "one", tables: map[string]string{address("A"): "A"}}
			add(t, dir, c, 1)
			copied, err := dir.Find("")
			if err != nil {
				t.Fatal(err)
			}
			if err := spoil(dir, copied); err != nil {
				t.Fatal(err)
			}
			into := &fake{}
			if copied, err = dir.Find(""); err == nil {
				_, err = dir.Restore(t.Context(), into, into.vectors(), copied)
			}
			if err == nil || into.did() != "" {
				t.Errorf("it is restored: %v", err)
			}
		})
	}
}

// A bit that flips in a manifest is found, or the copy is what it was.
func TestFlippedManifest(t *testing.T) {
	dir := Folder(t.TempDir())
	c := &fake{state: "one", tables: map[string]string{address("A"): "A"}, latents: map[string]string{address("v"): "v"}}
	add(t, dir, c, 1)
	want, err := dir.Find("")
	if err != nil {
		t.Fatal(err)
	}
	path := dir.manifest(want.Name)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		bad := bytes.Clone(text)
		bad[i] ^= 1 << (i % 8)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := dir.Find("")
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

// The latent vectors that a state names are copied with it; where chains have moved on
// meanwhile the state is copied again, and it is given up in the end.
func TestLatentVectors(t *testing.T) {
	dir := Folder(filepath.Join(t.TempDir(), "new"))
	c := &fake{state: "one", tables: map[string]string{address("A"): "A"}, latents: map[string]string{address("v"): "v"}, stale: 2}
	copied := add(t, dir, c, 1)
	if got := c.did(); got != "backup, backup, backup, vectors v, list, download A" {
		t.Errorf("a busy night: %s", got)
	}
	c.state, c.latents = "two", map[string]string{address("w"): "w"}
	add(t, dir, c, 2)
	c.did()
	into := &fake{}
	if _, err := dir.Restore(t.Context(), into, into.vectors(), copied); err != nil || into.did() != "upload A, upload vectors v, restore one" {
		t.Errorf("restored: %v", err)
	}
	if err := dir.Keep(1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir.table(address("v"))); err == nil {
		t.Error("vectors that no copy needs stay")
	}
	if _, err := os.Stat(dir.table(address("w"))); err != nil {
		t.Error("vectors that a copy needs are gone")
	}
	c.stale = stateTries
	if _, _, err := dir.Add(t.Context(), c, c.vectors(), time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)); !errors.Is(err, errMovedOn) {
		t.Errorf("a cluster that never rests: %v", err)
	}
}
