// Package cachedir manages the directory in which windtunnel keeps the programs that it installs for itself.
package cachedir

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Dir returns windtunnel's cache directory: WINDTUNNEL_CACHE, or windtunnel in the user's cache directory. A nil
// getenv means os.Getenv.
func Dir(getenv func(string) string) (string, error) {
	if getenv == nil {
		getenv = os.Getenv
	}
	if dir := getenv("WINDTUNNEL_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory: %w; set WINDTUNNEL_CACHE to a writable directory", err)
	}
	return filepath.Join(dir, "windtunnel"), nil
}

// LookPath is exec.LookPath on a given list of directories. It returns "" if it finds nothing.
func LookPath(list, name string) string {
	for _, dir := range filepath.SplitList(list) {
		if dir == "" {
			continue // the current directory does not count
		}
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}

// Lock waits for a lock between processes until ctx ends.
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
		go func() { // release the lock if it is acquired later
			if r := <-got; r.err == nil {
				r.unlock()
			}
		}()
		return nil, fmt.Errorf("another installation holds %s: %w", path, ctx.Err())
	}
}
