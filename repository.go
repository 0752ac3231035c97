// Package windtunnel embeds the files of the repository that commands print or play: the examples, and the claims of
// documents with the experiments that measure them.
package windtunnel

import "embed"

// Files has examples/*.yaml, experiments/*.yaml and docs/claims.md at these paths.
//
//go:embed docs/claims.md examples/*.yaml experiments/*.yaml
var Files embed.FS
