// Package modelserver serves the simulated engine over the network. To every client it is a vLLM server; only the GPU
// is simulated.
//
// A Fleet hosts many servers in one process, each on an address of its own. A server speaks HTTP/1.1 and HTTP/2 without
// TLS on the same port. This package has the server, its HTTP routes, its admin API and its metrics page. The packages
// below it have the other parts:
//
//   - enginedrive drives the engine in wall time and hands each request its own results, one step's worth at a time;
//   - wire reads bodies and writes answers;
//   - kvtransfer fetches KV caches from other servers and lets other servers fetch them;
//   - grpcapi is vLLM's gRPC service, vllmgrpc its messages;
//   - stored keeps responses and conversations;
//   - dropin reads vLLM's and llm-d-inference-sim's flags.
//
// A request is one goroutine, the one that net/http made for it. It reads the body, submits the request to the engine,
// and then sleeps on a mailbox that the engine's driver fills with tokens, the end, or a refusal. core/modelserver
// decides what may follow what; drive.Run carries those decisions out here. A held-open request (document 000,
// docs/documents.md) has a second goroutine, blocked on the open body, which notices part 2, a violation, or a peer
// that has left.
//
// A client that leaves, in whatever phase, aborts its request in the engine. The engine frees the request's slot and
// blocks at the end of the running step.
package modelserver
