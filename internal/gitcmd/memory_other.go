//go:build !linux

package gitcmd

// limitMemory does nothing: here memory cannot be bounded from outside.
func limitMemory(int, uint64) {}
