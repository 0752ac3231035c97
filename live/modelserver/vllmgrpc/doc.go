// Package vllmgrpc is vLLM's gRPC engine service on the wire: its messages,
// generated, and the framing under them.
//
// The model server serves it on its HTTP port, as one more HTTP/2 handler
// beside the others, so that a request by gRPC takes the same way through the
// server as any other: the same engine, faults, flow events and limits. What
// gRPC needs beyond HTTP/2 is small and stands here: length-prefixed messages,
// the status in the trailers, the deadline in a header.
//
// The service is vllm.grpc.engine.VllmEngine, which vLLM serves with --grpc and
// the router smg calls; core/picker/parse reads the same bodies for the
// endpoint picker.
package vllmgrpc

//go:generate ./generate
