// Package conformance plays Gateway API's own conformance suite against windtunnel.
//
// The suite expects a cluster. Here an in-memory client holds its objects; a
// controller gives every change to live/up, which a real Envoy and the echo servers
// obey, and writes the conditions that core/gateway reports back into the objects.
// It is a module of its own, so that Kubernetes' libraries stay out of windtunnel's.
package conformance
