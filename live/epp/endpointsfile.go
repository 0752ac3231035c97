package epp

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/windtunnel/windtunnel/core/picker/discovery"
)

// EndpointsFile keeps a Picking's pool equal to a file (plug-in
// file-discovery). A file that becomes unreadable or wrong changes nothing.
type EndpointsFile struct {
	k       *Picking
	path    string
	watcher *dirWatch
}

// OpenEndpointsFile reads the file, which must be right, and watches it if
// asked.
func OpenEndpointsFile(k *Picking, path string, watch bool, log *slog.Logger) (*EndpointsFile, error) {
	f := &EndpointsFile{k: k, path: path}
	if watch {
		// A ConfigMap is swapped by renaming a directory beside the file, so
		// every change of the directory is a reason to look.
		var err error
		f.watcher, err = watchDir("endpoints file "+path, filepath.Dir(path), log, func(name string) bool {
			return filepath.Base(name) == filepath.Base(path) || filepath.Base(name) == "..data"
		}, f.load)
		if err != nil {
			return nil, err
		}
	}
	if err := f.load(); err != nil {
		f.Close()
		return nil, err
	}
	if watch {
		f.watcher.start()
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
	// Not the pool's namespace: the real EPP takes its own default here, and
	// session tokens have it in them.
	list, err := discovery.Read(data, discovery.DefaultNamespace)
	if err != nil {
		return fmt.Errorf("endpoints file %s: %w", f.path, err)
	}
	f.k.SetEndpoints(list)
	return nil
}

// Close ends the watching.
func (f *EndpointsFile) Close() { f.watcher.close() }
