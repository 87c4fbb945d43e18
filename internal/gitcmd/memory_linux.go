package gitcmd

import (
	"syscall"
	"unsafe"
)

// limitMemory bounds the address space of a process. It is a second line: a
// process that has ended by now needs no bound, and one that the system does not
// let be bounded runs without.
func limitMemory(pid int, bytes uint64) {
	limit := syscall.Rlimit{Cur: bytes, Max: bytes}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_AS, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
}
