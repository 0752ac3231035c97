//go:build unix && !linux

package envoy

import (
	"os/exec"
	"syscall"
)

// tie gives the child a process group of its own, so that a Ctrl-C meant for
// windtunnel does not end Envoy under requests in flight. Only Linux also
// kills it when windtunnel is killed.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
