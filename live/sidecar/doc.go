// Package sidecar is the routing sidecar: a proxy in front of a decode server that lets other servers prefill prompts.
// core/sidecar/disagg makes the decisions, and this package carries them out over HTTP: it calls the legs, streams the
// answer to the client, cancels legs that are no longer needed, keeps the pool's allowlist, and writes metrics and
// logs.
//
// Requests that cannot involve a remote prefill go straight through Go's own reverse proxy.
package sidecar
