//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package server

import (
	"os"
	"syscall"
)

// lock locks an open file until it is closed or the process ends. With wait it
// waits for whoever has it, else it fails then.
func lock(f *os.File, wait bool) error {
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		if err := syscall.Flock(int(f.Fd()), how); err != syscall.EINTR {
			return err
		}
	}
}
