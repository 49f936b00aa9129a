// Package atomicfile writes files that are there whole or not at all, after a
// crash too. What is not a file (a device, a pipe) is written to, never replaced.
package atomicfile

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/failpoint"
)

// Write writes a file with these permissions. A file that is there already is
// replaced once all of the new one is on disk. Until then the new one goes by
// another name, which begins with a dot: a crash may leave it. A link stays: what it
// points to is replaced. A device, a pipe and standard output (/dev/null, /dev/stdout)
// are written to as they are.
func Write(path string, perm fs.FileMode, write func(io.Writer) error) error {
	st, err := os.Stat(path)
	switch {
	case err != nil || st.IsDir(): // what is wrong with the path shows when the file is put there
	case !st.Mode().IsRegular() || strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/"):
		return through(path, write)
	default:
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
	}
	return place(path, perm, write, os.Rename)
}

// through writes to what is there. Nothing is cut off: standard output may be a file
// that others append to.
func through(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	return errors.Join(write(w), w.Flush(), f.Close())
}

// Create is Write for bytes and a path where nothing is: an error that is fs.ErrExist
// says that something is there.
func Create(path string, perm fs.FileMode, data []byte) error {
	return place(path, perm, bytesOf(data), func(tmp, path string) error {
		if err := os.Link(tmp, path); err != nil {
			return err
		}
		return os.Remove(tmp)
	})
}

// place writes a file by another name, and lets put give it its own.
func place(path string, perm fs.FileMode, write func(io.Writer) error, put func(tmp, path string) error) (err error) {
	dir := filepath.Dir(path)
	failpoint.At("file create")
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // for its owner alone
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close() // again, maybe
			os.Remove(f.Name())
		}
	}()
	w := bufio.NewWriter(f)
	if err := write(w); err != nil {
		return err
	}
	if err := errors.Join(w.Flush(), f.Chmod(perm)); err != nil {
		return err
	}
	failpoint.At("file sync")
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	failpoint.At("file rename")
	if err := put(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// WriteBytes is Write for bytes.
func WriteBytes(path string, perm fs.FileMode, data []byte) error {
	return Write(path, perm, bytesOf(data))
}

func bytesOf(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// SyncDir makes last what was made, renamed or removed in a folder.
func SyncDir(dir string) error {
	failpoint.At("folder sync")
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
