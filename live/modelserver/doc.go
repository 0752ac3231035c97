// Package modelserver puts the simulated engine on the wire: a vLLM to every
// client, with everything real but the GPU.
//
// A Fleet hosts many servers in one process, each on an address of its own,
// speaking HTTP/1.1 and HTTP/2 without TLS on the same port. Behind every
// server one goroutine, the loop, owns a core/engine machine: it waits for a
// message or for the engine's next moment, whichever is first, and hands what
// happened to the requests concerned, a step's worth at a time.
//
// A request is one goroutine, the one that net/http made for it. It reads the
// body, submits, and then sleeps on a mailbox that the loop fills: tokens,
// the end, a refusal. What may follow what is decided by core/modelserver/lifecycle; here it
// is only carried out. A held-open request (document 000, docs/documents.md) has one goroutine
// more, blocked on the open body: it sees part 2, a violation, or that the
// peer has left.
//
// A client that leaves, in whatever phase, aborts its request in the engine:
// at the end of the running step its slot and its blocks are free.
package modelserver
