package stack

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// A run without a directory of its own makes one for its files among the
// temporary ones, and removes it at its end. A run that is killed cannot: the
// next one does, for all that no living process owns. Who owns a directory
// holds a lock in it, which the kernel takes back from a process that dies,
// however that dies and whichever number it had.

const (
	runDirPrefix = "windtunnel-"
	// runLock is the file whose lock says that the run goes on.
	runLock = "run.lock"
	// runKept is there once a run has failed and its logs wait for somebody.
	runKept = "kept"
	// keptFor is how long they wait.
	keptFor = 7 * 24 * time.Hour
)

// runDirName is what os.MkdirTemp makes of the prefix.
var runDirName = regexp.MustCompile(`^` + runDirPrefix + `[0-9]+$`)

// runDir is the directory of a run that goes on.
type runDir struct {
	path string
	lock *os.File // nil where the system has no such locks
}

// newRunDir makes one in temp, and clears what killed runs have left there.
func newRunDir(temp string, log *slog.Logger) (*runDir, error) {
	if n := clearRunDirs(temp); n > 0 {
		log.Debug("removed directories of runs that were killed", "in", temp, "directories", n)
	}
	path, err := os.MkdirTemp(temp, runDirPrefix)
	if err != nil {
		return nil, err
	}
	d := &runDir{path: path}
	// Nobody finds the lock before it is held.
	unseen := filepath.Join(path, runLock+".new")
	if d.lock, err = lock(unseen, os.O_CREATE); err == nil && d.lock != nil {
		err = os.Rename(unseen, filepath.Join(path, runLock))
	}
	if err != nil {
		return nil, errors.Join(err, d.remove())
	}
	return d, nil
}

// remove ends the run and its directory; nil has none.
func (d *runDir) remove() error {
	if d == nil {
		return nil
	}
	defer d.release() // while the directory is there it is ours
	return os.RemoveAll(d.path)
}

// keep ends the run and leaves its directory for a person to look at.
func (d *runDir) keep() error {
	if d == nil {
		return nil
	}
	defer d.release()
	return os.WriteFile(filepath.Join(d.path, runKept), nil, 0o600)
}

func (d *runDir) release() {
	if d.lock != nil {
		d.lock.Close()
	}
}

// clearRunDirs removes directories of ours that nobody owns any more, and says
// how many they were. What it cannot remove, or is not sure about, stays.
func clearRunDirs(temp string) (n int) {
	entries, err := os.ReadDir(temp)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		path := filepath.Join(temp, e.Name())
		if !e.IsDir() || !runDirName.MatchString(e.Name()) || !private(path) {
			continue
		}
		if kept, err := os.Lstat(filepath.Join(path, runKept)); err == nil && time.Since(kept.ModTime()) < keptFor {
			continue
		}
		held, err := lock(filepath.Join(path, runLock), 0)
		if err != nil || held == nil {
			continue
		}
		if os.RemoveAll(path) == nil {
			n++
		}
		held.Close()
	}
	return n
}
