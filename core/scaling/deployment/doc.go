// Package deployment plays the pods of a Kubernetes Deployment as far as they affect requests: each takes its start-up
// time until it is ready, and ends as the kubelet ends a pod. The ReplicaSet controller's rule selects the pod that
// leaves. An autoscaler (core/scaling/autoscaler) or an incident decides the number of pods. Begin to read at
// Deployment.
package deployment
