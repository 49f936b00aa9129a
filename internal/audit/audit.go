// Package audit appends events to a file, one JSON object a line, that only its
// owner can read. A file that has grown too large gets another name.
package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// The file, and those before it, which are called FILE.1, the newest, to FILE.N.
const (
	MaxBytes = 64 << 20
	Kept     = 9
)

// Log is an audit log. Its methods are safe for concurrent use.
type Log struct {
	path     string
	maxBytes int64
	mu       sync.Mutex
	f        *os.File
	size     int64
	sync     *time.Timer // is to run soon, if it is set
}

// syncAfter is how long what was appended may be with the operating system alone.
const syncAfter = time.Second

// Open opens a log, which may be there already.
func Open(path string) (*Log, error) { return open(path, MaxBytes) }

func open(path string, maxBytes int64) (*Log, error) {
	l := &Log{path: path, maxBytes: maxBytes}
	if err := l.reopen(); err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	return l, nil
}

func (l *Log) reopen() error {
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && st.Mode().IsRegular() {
		err = f.Chmod(0o600)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.f, l.size = f, st.Size()
	return nil
}

// Append writes an event. When it returns the operating system has it, and the disk
// a second later.
func (l *Log) Append(event any) error {
	line, err := json.Marshal(event)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return fs.ErrClosed
	}
	if l.size > 0 && l.size+int64(len(line)) > l.maxBytes {
		if err := l.rotate(); err != nil {
			return fmt.Errorf("rotating the audit log: %w", err)
		}
	}
	n, err := l.f.Write(line)
	l.size += int64(n)
	if l.sync == nil {
		l.sync = time.AfterFunc(syncAfter, l.flush)
	}
	return err
}

// flush lets the disk have what was appended.
func (l *Log) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sync = nil
	if l.f != nil {
		_ = l.f.Sync() // what follows will say so, too
	}
}

// rotate gives the file another name and begins a new one.
func (l *Log) rotate() error {
	for i := Kept - 1; i >= 1; i-- {
		err := os.Rename(fmt.Sprintf("%s.%d", l.path, i), fmt.Sprintf("%s.%d", l.path, i+1))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(l.path, l.path+".1"); err != nil {
		return err
	}
	old := l.f
	if err := l.reopen(); err != nil {
		return err
	}
	return errors.Join(old.Sync(), old.Close())
}

// Close closes the log.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	f := l.f
	l.f = nil
	if l.sync != nil {
		l.sync.Stop()
	}
	return errors.Join(f.Sync(), f.Close())
}
