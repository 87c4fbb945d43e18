//go:build !unix

package gitcmd

import "os/exec"

// ownGroup leaves git as it is: here only git itself is killed.
func ownGroup(*exec.Cmd) {}
