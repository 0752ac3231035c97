// Package envoy finds, configures, starts, watches and stops the real Envoy
// that every live run goes through. Windtunnel has no gateway of its own.
//
// The story in order:
//
//   - Find looks for a binary new enough for full-duplex bodies (a path that
//     the user gave, then PATH, then windtunnel's cache) and otherwise installs
//     a pinned, hash-checked one through the user's own uv or pip.
//   - Config says in windtunnel's words what the gateway should do: which
//     routes lead to which pools, which endpoint picker each pool asks, what
//     happens when that picker is gone. Config.YAML turns it into the text of
//     a bootstrap file, the same text that `windtunnel config` prints.
//   - Start runs the binary on that text in a directory of its own, and
//     returns once Envoy answers ready and its listening port is known.
//   - Process reads statistics from the admin interface, and stops Envoy so
//     that nothing stays behind.
//   - AccessLogTail yields what Envoy itself saw of each request.
//   - Inspect collects the facts that `windtunnel doctor` shows.
//
// What Envoy really does with a held request, and why each setting here is as
// it is, is written down in docs/envoy.md.
package envoy
