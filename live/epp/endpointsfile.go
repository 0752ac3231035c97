package epp

import (
	"fmt"
	"log/slog"

	"github.com/windtunnel/windtunnel/core/epp/picker/discovery"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/watch"
)

// EndpointsFile keeps a Picking's pool equal to a file (plug-in
// file-discovery). A file that becomes unreadable or wrong changes nothing.
type EndpointsFile struct {
	k       *Picking
	path    string
	watcher *watch.Watch
}

// OpenEndpointsFile reads the file, which must be right, and follows it if
// asked.
func OpenEndpointsFile(k *Picking, path string, follow bool, log *slog.Logger) (*EndpointsFile, error) {
	f := &EndpointsFile{k: k, path: path}
	if !follow {
		return f, f.load()
	}
	var err error
	f.watcher, err = watch.File("endpoints file "+path, path, log, f.load)
	return f, err
}

func (f *EndpointsFile) load() error {
	data, err := files.Read(f.path, discovery.MaxFileBytes)
	if err != nil {
		return fmt.Errorf("endpoints file: %w", err)
	}
	// Not the pool's namespace: the real EPP uses its own default here, and session tokens contain it.
	list, err := discovery.Read(f.path, data, discovery.DefaultNamespace)
	if err != nil {
		return err
	}
	f.k.SetEndpoints(list)
	return nil
}

// Close ends the watching.
func (f *EndpointsFile) Close() { f.watcher.Close() }
