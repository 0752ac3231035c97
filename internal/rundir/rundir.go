// Package rundir keeps the files of a run in a temporary directory that is removed when the run ends. A killed run
// cannot remove its own, so the next run removes all directories without a living owner. The owner of a directory
// holds a lock in it, which the kernel releases when the process ends in any way.
package rundir

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	// lockFile is the file whose lock means that the run has not ended.
	lockFile = "run.lock"
	// keptFile marks the directory of a failed run whose logs a person may want to read.
	keptFile = "kept"
	// keptFor is how long such a directory is kept.
	keptFor = 7 * 24 * time.Hour
)

// The prefixes of the commands' directories.
const (
	Run      = "windtunnel-"
	Up       = "windtunnel-up-"
	Validate = "windtunnel-validate-"
)

// ours matches the names that os.MkdirTemp makes from the prefixes.
var ours = regexp.MustCompile(`^windtunnel-(up-|validate-)?[0-9]+$`)

// Dir is the directory of a running run. A nil Dir does nothing.
type Dir struct {
	Path string
	lock *os.File // nil if the system has no such locks
}

// New makes a directory in temp whose name begins with prefix, and removes directories of killed runs there.
func New(temp, prefix string, log *slog.Logger) (*Dir, error) {
	if n := clear(temp); n > 0 && log != nil {
		log.Debug("removed directories of runs that were killed", "in", temp, "directories", n)
	}
	path, err := os.MkdirTemp(temp, prefix)
	if err != nil {
		return nil, err
	}
	d := &Dir{Path: path}
	// No other process sees the file before its lock is held.
	unseen := filepath.Join(path, lockFile+".new")
	if d.lock, err = lock(unseen, os.O_CREATE); err == nil && d.lock != nil {
		err = os.Rename(unseen, filepath.Join(path, lockFile))
	}
	if err != nil {
		return nil, d.End(err)
	}
	return d, nil
}

// ErrHeld is the error of Only for a directory whose owner runs.
var ErrHeld = errors.New("another process holds the directory")

// Only makes the directory at a path, and removes the files of an owner that was killed. One process at a time may own
// it.
func Only(path string) (d *Dir, err error) {
	if err = os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	d = &Dir{Path: path}
	if d.lock, err = lock(filepath.Join(path, lockFile), os.O_CREATE); err != nil {
		return nil, errors.Join(ErrHeld, err)
	}
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		if e.Name() != lockFile {
			err = errors.Join(err, os.RemoveAll(filepath.Join(path, e.Name())))
		}
	}
	if err != nil {
		return nil, d.End(err)
	}
	return d, nil
}

// Held reports whether the directory of Only at a path has an owner that runs. Without locks of files, the existence of
// the directory decides.
func Held(path string) bool {
	held, err := lock(filepath.Join(path, lockFile), 0)
	if held != nil {
		held.Close()
		return false
	}
	if err == nil {
		_, err = os.Stat(path)
		return err == nil
	}
	return !errors.Is(err, os.ErrNotExist)
}

// End ends the run and removes its directory. If err, the reason of the run's end, names a file in the directory, the
// directory stays for a week. End returns err, joined with errors of the removal.
func (d *Dir) End(err error) error {
	if d == nil {
		return err
	}
	if d.lock != nil {
		defer d.lock.Close() // the directory must stay locked while it exists
	}
	if err != nil && strings.Contains(err.Error(), d.Path+string(filepath.Separator)) {
		return errors.Join(err, os.WriteFile(filepath.Join(d.Path, keptFile), nil, 0o600))
	}
	if left := os.RemoveAll(d.Path); left != nil {
		return errors.Join(err, left)
	}
	return err
}

// clear removes directories of ours that have no owner, and returns their number. It leaves those that it cannot
// remove or is not sure about.
func clear(temp string) (n int) {
	entries, err := os.ReadDir(temp)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		path := filepath.Join(temp, e.Name())
		if !e.IsDir() || !ours.MatchString(e.Name()) || !private(path) {
			continue
		}
		if kept, err := os.Lstat(filepath.Join(path, keptFile)); err == nil && time.Since(kept.ModTime()) < keptFor {
			continue
		}
		held, err := lock(filepath.Join(path, lockFile), 0)
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
