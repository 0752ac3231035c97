// Package cluster has the processes of a simulated cluster on one machine: the addresses of its pods, the file in which
// pods are listed for endpoint pickers and sidecars, the Gateway in front of them (a real Envoy with its control plane
// and its body-based routers), and the Deployments whose pods come and go. Values go in: addresses, a gateway's
// Program, an autoscaler's Config. What is in them is decided by the core; nothing is decided here.
//
// It has two fronts: live/stack for scenarios and live/up for Kubernetes manifests. Begin to read at Gateway.
package cluster
