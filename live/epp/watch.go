package epp

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a directory must be left alone before its files are read:
// who writes a file does so in several steps.
const settle = 10 * time.Millisecond

// dirWatch calls load after changes in a directory.
type dirWatch struct {
	what    string
	w       *fsnotify.Watcher
	matters func(name string) bool
	load    func() error
	log     *slog.Logger
	wg      sync.WaitGroup
}

// watchDir watches from now on, so that no change between a first reading and
// the start is lost; changes are read after start.
func watchDir(what, dir string, log *slog.Logger, matters func(name string) bool, load func() error) (*dirWatch, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("%s: cannot watch it: %w", what, err)
	}
	if err := w.Add(dir); err != nil {
		w.Close()
		return nil, fmt.Errorf("%s: cannot watch it: %w", what, err)
	}
	return &dirWatch{what: what, w: w, matters: matters, load: load, log: log}, nil
}

func (d *dirWatch) start() { d.wg.Go(d.run) }

func (d *dirWatch) run() {
	quiet := time.NewTimer(time.Hour)
	quiet.Stop()
	defer quiet.Stop()
	for {
		select {
		case e, ok := <-d.w.Events:
			if !ok {
				return
			}
			if !e.Has(fsnotify.Chmod) && d.matters(e.Name) {
				quiet.Reset(settle)
			}
		case <-quiet.C:
			if err := d.load(); err != nil {
				d.log.Error("epp: what was changed is not used; the old state stays", "from", d.what, "error", err)
			}
		case err, ok := <-d.w.Errors:
			if !ok {
				return
			}
			d.log.Error("epp: watching failed", "from", d.what, "error", err)
		}
	}
}

func (d *dirWatch) close() {
	if d != nil {
		d.w.Close()
		d.wg.Wait()
	}
}

// FileWatch calls back after changes of a file.
type FileWatch struct{ dir *dirWatch }

// WatchFile calls load whenever a file was written, replaced or, as Kubernetes
// does it, linked anew. What load refuses is told to the log.
func WatchFile(what, path string, log *slog.Logger, load func() error) (*FileWatch, error) {
	dir, err := watchDir(what, filepath.Dir(path), log, func(name string) bool {
		return filepath.Base(name) == filepath.Base(path) || filepath.Base(name) == "..data"
	}, load)
	if err != nil {
		return nil, err
	}
	dir.start()
	return &FileWatch{dir}, nil
}

// Close ends the watch; nil is none.
func (w *FileWatch) Close() {
	if w != nil {
		w.dir.close()
	}
}
