package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// wantFile checks the text and permissions of a file, and that it is alone.
func wantFile(t *testing.T, path, text string, perm fs.FileMode) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != text {
		t.Errorf("it holds %.20q, %v", got, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != perm {
		t.Errorf("its mode is %v, %v", st.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("beside it are %v, %v", entries, err)
	}
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x*y")
	if err := WriteBytes(path, 0o600, []byte("old")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, "old", 0o600)
	long := strings.Repeat("new", 10_000)
	err := Write(path, 0o644, func(w io.Writer) error {
		for i := range 10 {
			if _, err := io.WriteString(w, long[i*3000:(i+1)*3000]); err != nil {
				return err
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
				t.Errorf("before all is written it holds %.20q, %v", b, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, long, 0o644)
}

// What cannot be written leaves the old file, and nothing else.
func TestFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	if err := WriteBytes(path, 0o640, []byte("old")); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	err := Write(path, 0o644, func(w io.Writer) error {
		if _, err := io.WriteString(w, strings.Repeat("new", 10_000)); err != nil {
			return err
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	wantFile(t, path, "old", 0o640)
	if err := WriteBytes(filepath.Join(dir, "none", "x"), 0o644, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteBytes(filepath.Join(dir, "folder"), 0o644, nil); err == nil {
		t.Error("a folder was replaced")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if err := SyncDir(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// A device, a pipe and a link are still there after a file was written to them by name.
func TestNotFiles(t *testing.T) {
	if st, err := os.Stat(os.DevNull); err != nil || st.Mode()&fs.ModeDevice == 0 {
		t.Skipf("no device at %s: %v", os.DevNull, err)
	}
	// A device by a link of its own: were it replaced, only the link would be lost.
	dir := t.TempDir()
	null := filepath.Join(dir, "null")
	if err := os.Symlink(os.DevNull, null); err != nil {
		t.Fatal(err)
	}
	if err := WriteBytes(null, 0o644, []byte("x")); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(null); err != nil || st.Mode()&fs.ModeDevice == 0 {
		t.Errorf("the device is now %v, %v", st.Mode(), err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan string)
	go func() {
		text, err := os.ReadFile(pipe)
		if err != nil {
			t.Error(err)
		}
		got <- string(text)
	}()
	if err := WriteBytes(pipe, 0o644, []byte("through")); err != nil {
		t.Error(err)
	}
	if text := <-got; text != "through" {
		t.Errorf("the pipe's reader got %q", text)
	}
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(target, []byte("old"), 0o600), os.Symlink("target", link)); err != nil {
		t.Fatal(err)
	}
	if err := WriteBytes(link, 0o644, []byte("new")); err != nil {
		t.Error(err)
	}
	if to, err := os.Readlink(link); err != nil || to != "target" {
		t.Errorf("the link points to %q, %v", to, err)
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "new" {
		t.Errorf("what the link points to holds %q, %v", text, err)
	}
}
