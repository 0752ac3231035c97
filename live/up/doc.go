// Package up runs the objects of Kubernetes manifests on one machine. Their Deployments' replicas are simulated model
// servers, their InferencePools have endpoint pickers, and their Gateways are listeners of a real Envoy, which gets its
// configuration over xDS. Apply replaces the manifests while requests flow; if it fails, nothing changes.
//
// core/plan compiles the objects into a Cluster, and finds the difference that an edit makes. This package executes
// both and assigns the addresses: every pod has a loopback address of its own, so the ports are the manifests' ports.
package up
