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

// Settle is how long a directory must be unchanged before its files are read, because programs write a file in
// several steps.
const Settle = 10 * time.Millisecond

// Watch calls load after changes until it is closed.
type Watch struct {
	what string
	w    *fsnotify.Watcher
	log  *slog.Logger
	wg   sync.WaitGroup
}

// Dir calls load once, which must succeed, and again after each change of a file in a directory for which matters
// returns true, and when Kubernetes swaps a mounted volume's files (..data). Later errors of load are logged; load
// must then leave everything as it was. No change is missed, not even one during the first load. What names the files
// in errors.
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
				d.log.Error("the changed files have an error; the old state stays in use", "from", d.what, "error", err)
			}
		case err, ok := <-d.w.Errors:
			if !ok {
				return
			}
			d.log.Error("watching failed", "from", d.what, "error", err)
		}
	}
}

// Close ends the watch and waits for a running load. A nil Watch has nothing to close.
func (d *Watch) Close() {
	if d != nil {
		d.w.Close()
		d.wg.Wait()
	}
}

// refused returns load's error. A panic of load is an error too, and does not end the process.
func refused(load func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic while reading: %v\n%s", v, debug.Stack())
		}
	}()
	return load()
}
