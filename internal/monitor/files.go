package monitor

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Files returns an error if the process can open no more files: then it answers no new
// connection, and keeps nothing new.
func Files() error {
	f, err := os.Open(os.DevNull)
	switch {
	case err == nil:
		f.Close()
	case errors.Is(err, syscall.EMFILE):
		return errors.New("the process has as many files and connections open as it may: raise its limit (ulimit -n, LimitNOFILE= of systemd)")
	case errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("the machine has as many files open as it can (sysctl fs.file-max): %w", err)
	}
	return nil
}
