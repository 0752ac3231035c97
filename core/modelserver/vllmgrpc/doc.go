// Package vllmgrpc is vLLM's gRPC engine service on the wire: its messages,
// generated, and the framing under them.
//
// What gRPC needs beyond HTTP/2 is small and stands here: length-prefixed messages,
// the status in the trailers, the deadline in a header. So a request by gRPC takes
// the same way through a model server as any other.
//
// The service is vllm.grpc.engine.VllmEngine, which vLLM serves with --grpc and
// the router smg calls; core/epp/picker/parse reads the same bodies for the
// endpoint picker.
package vllmgrpc

//go:generate ./generate

// Service is the service's full name, and the paths are those of the methods that
// ask for tokens.
const (
	Service      = "vllm.grpc.engine.VllmEngine"
	GeneratePath = "/" + Service + "/Generate"
	EmbedPath    = "/" + Service + "/Embed"
)
