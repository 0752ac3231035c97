// Package fakebin writes the programs that stand in for real ones in tests.
package fakebin

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Write writes an executable file with this text, and its directory where there is none, and returns its path.
//
// While the file is open for writing, no other goroutine may start a process: the new process would hold the file open
// until its own exec, and to execute the file would fail until then ("text file busy").
func Write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
