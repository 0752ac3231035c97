// Package windtunnel embeds the files of the repository that commands print or play: the examples, and the claims of
// documents with the experiments that measure them.
package windtunnel

import (
	_ "embed" // the archive
	"io/fs"

	"github.com/windtunnel/windtunnel/internal/packed"
)

//go:embed repository.zip
var archive []byte

// Files has examples/*.yaml, experiments/*.yaml and docs/claims.md at these paths.
var Files fs.FS = packed.Open(archive)
