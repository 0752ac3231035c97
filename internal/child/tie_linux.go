package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start starts the child in a process group of its own, so that a Ctrl-C for windtunnel does not end the child while
// requests are in flight. The kernel kills the child when windtunnel is killed.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}

// starter runs functions on a thread that exists as long as the process. The kernel kills a child when the thread
// that started it ends, and the Go runtime ends threads.
var starter = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go startChildren(calls)
	return calls
})

// startChildren runs until the process ends, so tests for leaked goroutines ignore it.
func startChildren(calls <-chan func()) {
	runtime.LockOSThread()
	for call := range calls {
		call()
	}
}
