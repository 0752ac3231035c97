package epp

import (
	"fmt"
	"log/slog"

	"github.com/windtunnel/windtunnel/core/epp/picker/discovery"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/watch"
)

// followEndpoints keeps a Picking's pool equal to a file (plug-in file-discovery). It reads the file, which must be
// right. With follow it reads it again when it changes; a file that is unreadable or wrong then changes nothing.
func followEndpoints(k *Picking, path string, follow bool, log *slog.Logger) (*watch.Watch, error) {
	load := func() error {
		data, err := files.Read(path, discovery.MaxFileBytes)
		if err != nil {
			return fmt.Errorf("endpoints file: %w", err)
		}
		// Not the pool's namespace: the real EPP uses its own default here, and session tokens contain it.
		list, err := discovery.Read(path, data, discovery.DefaultNamespace)
		if err == nil {
			k.SetEndpoints(list)
		}
		return err
	}
	if !follow {
		return nil, load()
	}
	return watch.File("endpoints file "+path, path, log, load)
}
