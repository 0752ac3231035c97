// Package connector holds what is particular to each KV connector, one file each: how its transfers behave
// (core/kv/link), which two legs the routing sidecar makes of a request (core/sidecar/disagg), and what a model server
// reads in the legs and answers (core/modelserver).
//
// NIXL, shared storage, SGLang, Mooncake and offloading follow today's pd-sidecar (v0.10.0). Their legs are the same to
// the byte, except where docs/parity-sidecar.md says otherwise. NIXL v1 and LMCache follow document 003
// (docs/documents.md). The profiles' figures are assumptions: a handshake, and the bandwidth that the networks allow.
package connector
