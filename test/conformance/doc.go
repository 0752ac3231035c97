// Package conformance runs Gateway API's conformance suite with windtunnel.
//
// The suite expects a cluster. Here an in-memory client holds its objects. A controller passes every change to
// live/up, which configures a real Envoy and the echo servers, and writes the conditions that core/gateway reports
// into the objects. The package is a module of its own, so that windtunnel's module does not depend on Kubernetes'
// libraries.
package conformance
