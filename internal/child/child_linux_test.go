package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// A child survives the end of the thread that started it.
func TestStartOutlivesTheThread(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		thread int
		err    error
	}
	started := make(chan result)
	var start func()
	start = func() {
		runtime.LockOSThread() // and never unlocked, so the runtime ends the thread,
		if syscall.Gettid() == syscall.Getpid() {
			go start() // except the first one
			return
		}
		started <- result{syscall.Gettid(), Start(cmd)}
	}
	go start()
	r := <-started
	if r.err != nil {
		t.Fatal(r.err)
	}
	eventually.Is(t, "the thread has ended", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", r.thread))
		return err != nil
	})
	if _, err := fmt.Fprintln(in, "alive"); err != nil {
		t.Error(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "alive\n" {
		t.Errorf("the child says %q, %v", line, err)
	}
	Kill(cmd)
	_ = cmd.Wait() // the error says that it was killed
}
