// Package vllmgrpc implements the wire format of vLLM's gRPC engine service: its generated messages, and the framing
// under them.
//
// gRPC needs little beyond HTTP/2: length-prefixed messages, the status in the trailers, and the deadline in a header.
// A gRPC request therefore takes the same path through a model server as any other.
//
// The service is vllm.grpc.engine.VllmEngine, which vLLM serves with --grpc and the router smg calls.
// core/epp/picker/parse reads the same bodies for the endpoint picker.
package vllmgrpc

//go:generate ./generate

// Service is the service's full name. The paths are those of the methods that generate tokens.
const (
	Service      = "vllm.grpc.engine.VllmEngine"
	GeneratePath = "/" + Service + "/Generate"
	EmbedPath    = "/" + Service + "/Embed"
)
