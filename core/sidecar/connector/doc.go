// Package connector holds what is particular to a KV connector, each in a file of its own: how its transfers behave
// (core/kv/link), what the routing sidecar makes of a request's two legs (core/sidecar/disagg), and what a model server
// reads in them and answers (core/modelserver).
//
// NIXL, shared storage, SGLang, Mooncake and offloading are today's pd-sidecar's (v0.10.0), their legs the same to the
// byte, except where docs/parity-sidecar.md says otherwise; NIXL v1 and LMCache are as document 003 (docs/documents.md)
// describes them. The profiles' figures are assumptions: what the wires allow, and a handshake.
package connector
