// Package objects reads the Kubernetes objects that the endpoint picker acts
// on, from YAML: InferencePools, their pods, InferenceObjectives and
// InferenceModelRewrites. Without a cluster they come from files
// (--objects DIR), and have the same effect.
//
// A Set is everything that was read. Of it, a pool sees what Select gives:
// its endpoints (one for each ready pod and target port), the priorities of
// its objectives and its model rewrites, oldest first, in the types of
// core/epp/picker.
//
// An InferencePool has had several groups and shapes; all become one Pool:
//
//   - inference.networking.k8s.io/v1: selector.matchLabels, targetPorts,
//     endpointPickerRef
//   - inference.networking.x-k8s.io/v1alpha2 (document 002, docs/documents.md): selector is the
//     labels themselves, targetPortNumber, extensionRef; and status.targets,
//     from which document 002's scheduler reads its pods
//   - serving.kserve.io/v1alpha1 (document 003): matchExpressions too, and
//     sections on routing, disaggregation, health and scaling
//
// What the real picker (llm-d-router v0.10.0) does is followed to the letter,
// with two exceptions, both accidents of that version: of rewrites created
// within one second an arbitrary one wins there, here the one that was read
// first; and a pod is served there when it is Ready even if its phase says
// Failed or Succeeded, which is kept, since recordings show it, but no cluster
// produces it.
//
// Everything is pure: bytes in, structs out. Errors carry file, line and
// field. What the CRDs' schemas refuse (config/crd/bases of
// gateway-api-inference-extension v1.6 and llm-d-router, and of v1.3 for
// v1alpha2), and what the API server demands of names and labels, is refused
// here; status, which is not the author's to write, is not checked against
// them. null counts as absent, as there. Fields that are not known are only warned about, because manifests
// of newer versions should load; other kinds are left alone.
package objects
