// Package deployment is a Kubernetes Deployment's pods as far as requests feel them: each
// takes its time until it is ready, and leaves in the way in which the kubelet ends a pod. Who
// goes first when there are too many is the ReplicaSet controller's rule. How many there
// are to be is somebody else's decision (core/scaling/autoscaler, or an incident).
package deployment
