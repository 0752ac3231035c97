package up

import (
	"io"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/manifests"
)

// Load reads the objects of files and directories ("-" is the input). The error lists every mistake in them.
func Load(paths []string, input io.Reader) (*gateway.Set, error) { return manifests.Load(paths, input) }
