// Package objects reads the Kubernetes objects that configure an endpoint picker, from YAML: InferencePools, their
// pods, InferenceObjectives and InferenceModelRewrites. Without a cluster they come from files (--objects DIR), with
// the same effect.
//
// A Set holds everything that was read. Select returns a pool's part: its endpoints (one for each ready pod and target
// port), the priorities of its objectives and its model rewrites, oldest first, in the types of core/epp/picker.
//
// An InferencePool has had several groups and forms; all become one Pool:
//
//   - inference.networking.k8s.io/v1: selector.matchLabels, targetPorts,
//     endpointPickerRef
//   - inference.networking.x-k8s.io/v1alpha2 (document 002, docs/documents.md): selector is the
//     labels themselves, targetPortNumber, extensionRef; and status.targets,
//     from which document 002's scheduler reads its pods
//   - serving.kserve.io/v1alpha1 (document 003): matchExpressions too, and
//     sections on routing, disaggregation, health and scaling
//
// The package does exactly what the real picker (llm-d-router v0.10.0) does, with one exception. Of rewrites created
// within one second an arbitrary one wins there; here the one that was read first wins. Like the real picker, it uses a
// pod that is Ready even if its phase is Failed or Succeeded, which no cluster produces.
//
// Everything is pure: bytes in, structs out. Errors have file, line and field. The package refuses what the CRDs'
// schemas refuse (config/crd/bases of gateway-api-inference-extension v1.6 and llm-d-router, and of v1.3 for v1alpha2),
// and names and labels that the API server refuses. It does not check status, which users do not write, against the
// schemas. null counts as absent, as in the API server. Unknown fields only cause a warning, since manifests of newer
// versions should load. Other kinds are ignored.
package objects
