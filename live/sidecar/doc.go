// Package sidecar is the routing sidecar: the proxy in front of a decode server
// that has prompts prefilled elsewhere. core/sidecar/disagg decides; this package
// carries the decisions out over HTTP: it calls the legs, streams the answer
// through, cancels what nobody waits for any more, keeps the allowlist of the
// pool, and tells metrics and logs.
//
// Everything that a prefill elsewhere cannot concern goes straight through
// Go's own reverse proxy.
package sidecar
