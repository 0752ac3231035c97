// Package cluster starts and stops the processes of a simulated cluster on one machine: pods with their addresses and
// sidecars, latency predictors, the file in which pods are listed for endpoint pickers and sidecars, and the Gateway in
// front of them (a real Envoy with its control plane and its body-based routers). Options of the parts, addresses and a
// gateway's Program enter, and running processes with their addresses leave. The core decides what these values
// contain.
//
// The package has two fronts: live/stack for scenarios and live/up for Kubernetes manifests. Begin to read at Pod and
// Gateway.
package cluster
