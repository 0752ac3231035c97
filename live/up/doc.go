// Package up brings the objects of Kubernetes manifests to life on one machine:
// their Deployments' replicas are simulated model servers, their InferencePools
// have endpoint pickers, and their Gateways are listeners of a real Envoy, which
// gets its configuration by xDS. Apply takes over other manifests while requests
// flow; what cannot be taken over changes nothing.
//
// What the objects mean is core/gateway's to say. Here are the addresses: every
// pod has a loopback address of its own, so that ports are those of the manifests.
package up
