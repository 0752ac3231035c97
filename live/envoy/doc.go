// Package envoy finds, configures, starts, watches and stops the real Envoy that every live run uses. Windtunnel has no
// gateway of its own.
//
// In order:
//
//   - Find searches for a binary new enough for full-duplex bodies (a path that the user gave, then PATH, then
//     windtunnel's cache) and otherwise installs a pinned, hash-checked one with the user's own uv or pip.
//   - Config describes the gateway in windtunnel's terms: the routes to each pool, the endpoint picker of each pool,
//     and what happens if that picker is gone. Config.YAML turns it into the text of a bootstrap file, which
//     `windtunnel config` prints.
//   - Start runs the binary with that text in a directory of its own. It returns once Envoy reports ready and its
//     listening port is known.
//   - Process reads statistics from the admin interface, and stops Envoy without leaving anything behind.
//   - AccessLogTail returns Envoy's own record of each request.
//   - Inspect collects the facts that `windtunnel doctor` shows.
//
// docs/envoy.md describes how Envoy handles a held request, and the reason for each setting here.
package envoy
