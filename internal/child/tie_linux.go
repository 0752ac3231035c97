package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start starts the child in a process group of its own, so that a Ctrl-C meant for
// windtunnel does not end the child under requests in flight, and has the kernel
// kill it when windtunnel dies without a chance to.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}

// starter runs functions on a thread that lasts as long as the process: the kernel
// kills a child when the thread that started it ends, and the Go runtime ends
// threads.
var starter = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go startChildren(calls)
	return calls
})

// startChildren lasts as long as the process, so tests that look for leaked goroutines leave it out.
func startChildren(calls <-chan func()) {
	runtime.LockOSThread()
	for call := range calls {
		call()
	}
}
