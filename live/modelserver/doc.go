// Package modelserver puts the simulated engine on the wire: a vLLM to every
// client, with everything real but the GPU.
//
// A Fleet hosts many servers in one process, each on an address of its own,
// speaking HTTP/1.1 and HTTP/2 without TLS on the same port. This package has the
// server, its HTTP routes, its admin API and its metrics page. What a stranger may
// look for alone has a package of its own below it:
//
//   - enginedrive plays the engine by the wall clock and hands what happened to the
//     requests concerned, a step's worth at a time;
//   - wire reads bodies and writes answers;
//   - kvtransfer fetches KV caches from other servers and lets them be fetched;
//   - grpcapi is vLLM's gRPC service, vllmgrpc its messages;
//   - stored keeps responses and conversations;
//   - dropin reads vLLM's and llm-d-inference-sim's flags.
//
// A request is one goroutine, the one that net/http made for it. It reads the
// body, submits, and then sleeps on a mailbox that the engine's driver fills:
// tokens, the end, a refusal. What may follow what is decided by
// core/modelserver; here it is only carried out (drive.Run). A held-open request
// (document 000, docs/documents.md) has one goroutine more, blocked on the open
// body: it sees part 2, a violation, or that the peer has left.
//
// A client that leaves, in whatever phase, aborts its request in the engine:
// at the end of the running step its slot and its blocks are free.
package modelserver
