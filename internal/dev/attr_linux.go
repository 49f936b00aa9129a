package dev

import "syscall"

// childAttr lets a child die with its parent, however that dies, and keeps the
// terminal's interrupts from it: the parent passes them on.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
