//go:build unix

package gitcmd

import (
	"os/exec"
	"syscall"
)

// ownGroup makes git the head of a process group, all of which is killed when
// the run must end.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
