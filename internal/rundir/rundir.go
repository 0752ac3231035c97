// Package rundir keeps the files of a run in a directory among the temporary ones, which goes
// at the run's end. A run that is killed cannot remove its own: the next one does, for all that
// no living process owns. Who owns a directory holds a lock in it, which the kernel takes back
// from a process that dies, however that dies and whichever number it had.
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
	// lockFile is the file whose lock says that the run goes on.
	lockFile = "run.lock"
	// keptFile is there once a run has failed and its logs wait for somebody.
	keptFile = "kept"
	// keptFor is how long they wait.
	keptFor = 7 * 24 * time.Hour
)

// The prefixes of commands' directories.
const (
	Run      = "windtunnel-"
	Up       = "windtunnel-up-"
	Validate = "windtunnel-validate-"
)

// ours is what os.MkdirTemp makes of the prefixes.
var ours = regexp.MustCompile(`^windtunnel-(up-|validate-)?[0-9]+$`)

// Dir is the directory of a run that goes on; nil is none.
type Dir struct {
	Path string
	lock *os.File // nil where the system has no such locks
}

// New makes one in temp, its name begins with a prefix, and clears what killed runs have left
// there.
func New(temp, prefix string, log *slog.Logger) (*Dir, error) {
	if n := clear(temp); n > 0 && log != nil {
		log.Debug("removed directories of runs that were killed", "in", temp, "directories", n)
	}
	path, err := os.MkdirTemp(temp, prefix)
	if err != nil {
		return nil, err
	}
	d := &Dir{Path: path}
	// Nobody finds the lock before it is held.
	unseen := filepath.Join(path, lockFile+".new")
	if d.lock, err = lock(unseen, os.O_CREATE); err == nil && d.lock != nil {
		err = os.Rename(unseen, filepath.Join(path, lockFile))
	}
	if err != nil {
		return nil, d.End(err)
	}
	return d, nil
}

// End ends the run and removes its directory. Where err, why the run ended, names a file in it,
// the directory stays for a person to look at: a later run removes it after a week. End returns
// err, with what could not be removed.
func (d *Dir) End(err error) error {
	if d == nil {
		return err
	}
	if d.lock != nil {
		defer d.lock.Close() // while the directory is there it is ours
	}
	if err != nil && strings.Contains(err.Error(), d.Path+string(filepath.Separator)) {
		return errors.Join(err, os.WriteFile(filepath.Join(d.Path, keptFile), nil, 0o600))
	}
	if left := os.RemoveAll(d.Path); left != nil {
		return errors.Join(err, left)
	}
	return err
}

// clear removes directories of ours that nobody owns any more, and says
// how many they were. What it cannot remove, or is not sure about, stays.
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
