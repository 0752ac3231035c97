// Package watch reads files again when they change.
package watch

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Settle is how long a directory must be left alone before its files are read:
// who writes a file does so in several steps.
const Settle = 10 * time.Millisecond

// Watch calls load after changes until it is closed.
type Watch struct {
	what string
	w    *fsnotify.Watcher
	log  *slog.Logger
	wg   sync.WaitGroup
}

// Dir calls load at once, which must succeed, and again after each change of a
// file in a directory that matters, and when Kubernetes swaps a mounted volume's
// files (..data). What load refuses then is told to the log; it is for load to
// leave everything as it was. No change is lost, not even one during the first
// load. What names the files in errors.
func Dir(what, dir string, log *slog.Logger, matters func(name string) bool, load func() error) (*Watch, error) {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		if err = w.Add(dir); err != nil {
			w.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cannot watch it: %w", what, err)
	}
	if err := load(); err != nil {
		w.Close()
		return nil, err
	}
	d := &Watch{what: what, w: w, log: log}
	d.wg.Go(func() { d.run(matters, load) })
	return d, nil
}

// File is Dir for one file.
func File(what, path string, log *slog.Logger, load func() error) (*Watch, error) {
	return Dir(what, filepath.Dir(path), log, func(name string) bool { return name == filepath.Base(path) }, load)
}

func (d *Watch) run(matters func(name string) bool, load func() error) {
	quiet := time.NewTimer(time.Hour)
	defer quiet.Stop()
	quiet.Stop()
	for {
		select {
		case e, ok := <-d.w.Events:
			if !ok {
				return
			}
			if name := filepath.Base(e.Name); !e.Has(fsnotify.Chmod) && (matters(name) || name == "..data") {
				quiet.Reset(Settle)
			}
		case <-quiet.C:
			if err := refused(load); err != nil {
				d.log.Error("what was changed is not used; the old state stays", "from", d.what, "error", err)
			}
		case err, ok := <-d.w.Errors:
			if !ok {
				return
			}
			d.log.Error("watching failed", "from", d.what, "error", err)
		}
	}
}

// Close ends the watch and waits for a load under way; a nil Watch is none.
func (d *Watch) Close() {
	if d != nil {
		d.w.Close()
		d.wg.Wait()
	}
}

// refused is why load did not take what it read. One that panics is no reason
// for the process to end.
func refused(load func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("reading it failed: panic: %v\n%s", v, debug.Stack())
		}
	}()
	return load()
}
