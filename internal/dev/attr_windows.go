package dev

import "syscall"

// childAttr keeps the terminal's interrupts from a child: the parent passes
// them on.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
