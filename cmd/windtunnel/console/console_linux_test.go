package console

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Programs that a command starts handle SIGPIPE as under a shell: one that writes to a pipe without a reader ends.
func TestChildrenTakeSIGPIPE(t *testing.T) {
	_, stop := New().Context()
	defer stop()
	status, err := exec.Command("cat", "/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "SigIgn:")
	mask, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	ignored, err := strconv.ParseUint(mask, 16, 64)
	if err != nil || ignored&(1<<(syscall.SIGPIPE-1)) != 0 {
		t.Errorf("signals that a child ignores: %s, %v", mask, err)
	}
}
