//go:build unix

package cluster

import (
	"errors"

	"golang.org/x/sys/unix"
)

// noSpace reports whether an error says that a disk is full.
func noSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
