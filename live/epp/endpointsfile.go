package epp

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/discovery"
)

// EndpointsFile keeps a Picking's pool equal to a file (plug-in
// file-discovery). A file that becomes unreadable or wrong changes nothing.
type EndpointsFile struct {
	k         *Picking
	path      string
	namespace string
	changed   func()
	log       *slog.Logger
	watcher   *fsnotify.Watcher
	wg        sync.WaitGroup
}

// OpenEndpointsFile reads the file, which must be right, and watches it if
// asked. changed is called after each change of the pool; it may be nil.
func OpenEndpointsFile(k *Picking, path, namespace string, watch bool, log *slog.Logger, changed func()) (*EndpointsFile, error) {
	f := &EndpointsFile{k: k, path: path, namespace: namespace, changed: changed, log: log}
	if watch {
		w, err := fsnotify.NewWatcher()
		if err == nil {
			err = w.Add(filepath.Dir(path))
		}
		if err != nil {
			return nil, fmt.Errorf("endpoints file %s: cannot watch it: %w", path, err)
		}
		f.watcher = w
	}
	if err := f.load(); err != nil {
		f.Close()
		return nil, err
	}
	if watch {
		f.wg.Go(f.watch)
	}
	return f, nil
}

func (f *EndpointsFile) load() error {
	info, err := os.Stat(f.path)
	if err != nil {
		return fmt.Errorf("endpoints file: %w", err)
	}
	if info.Size() > discovery.MaxFileBytes {
		return fmt.Errorf("endpoints file %s has %d bytes; at most %d are read", f.path, info.Size(), discovery.MaxFileBytes)
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		return fmt.Errorf("endpoints file: %w", err)
	}
	list, err := discovery.Read(data, f.namespace)
	if err != nil {
		return fmt.Errorf("endpoints file %s: %w", f.path, err)
	}
	f.k.With(func(p *picker.Picker, _ machine.Time) { p.Pool().Set(list) })
	if f.changed != nil {
		f.changed()
	}
	return nil
}

func (f *EndpointsFile) watch() {
	for {
		select {
		case e, ok := <-f.watcher.Events:
			if !ok {
				return
			}
			// A ConfigMap is swapped by renaming a directory beside the file,
			// so every change of the directory is a reason to look.
			if filepath.Base(e.Name) != filepath.Base(f.path) && filepath.Base(e.Name) != "..data" {
				continue
			}
			if e.Has(fsnotify.Chmod) || e.Has(fsnotify.Remove) {
				continue
			}
			if err := f.load(); err != nil {
				f.log.Error("epp: the new endpoints are not used; the old ones stay", "error", err)
			}
		case err, ok := <-f.watcher.Errors:
			if !ok {
				return
			}
			f.log.Error("epp: watching the endpoints file failed", "path", f.path, "error", err)
		}
	}
}

// Close ends the watching.
func (f *EndpointsFile) Close() {
	if f.watcher != nil {
		f.watcher.Close()
	}
	f.wg.Wait()
}
