// Package cachedir is where windtunnel keeps what it installs for itself.
package cachedir

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Dir is windtunnel's cache: WINDTUNNEL_CACHE, or windtunnel in the user's cache
// directory. A nil getenv is os.Getenv.
func Dir(getenv func(string) string) (string, error) {
	if getenv == nil {
		getenv = os.Getenv
	}
	if dir := getenv("WINDTUNNEL_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory: %w; set WINDTUNNEL_CACHE to a directory that can be written", err)
	}
	return filepath.Join(dir, "windtunnel"), nil
}

// LookPath is exec.LookPath on a given list of directories; "" where there is none.
func LookPath(list, name string) string {
	for _, dir := range filepath.SplitList(list) {
		if dir == "" {
			continue // the current directory is never meant
		}
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}

// Lock waits for a lock between processes, but no longer than ctx.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	type result struct {
		unlock func()
		err    error
	}
	got := make(chan result, 1)
	go func() {
		unlock, err := lockedfile.MutexAt(path).Lock()
		got <- result{unlock, err}
	}()
	select {
	case r := <-got:
		return r.unlock, r.err
	case <-ctx.Done():
		go func() { // the lock may still come; it must not stay
			if r := <-got; r.err == nil {
				r.unlock()
			}
		}()
		return nil, fmt.Errorf("another install holds %s: %w", path, ctx.Err())
	}
}
