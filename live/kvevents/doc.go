// Package kvevents carries KV-cache events over ZMQ, the way vLLM, llm-d and
// document 003 (docs/documents.md) do.
//
// A Publisher sends what a model server's cache does: three frames (topic,
// sequence number, payload), a batch every 100 ms, on a PUB socket that binds
// (endpoint pickers dial it, port 5557) or connects (to a central subscriber,
// port 5555 in document 003). Beside it a ROUTER socket replays what it sent
// not long ago.
//
// A Subscriber takes such messages on a SUB socket that binds, or dials each
// pod; it reconnects by itself, and a kvfeed.Feed per pod puts the messages into
// order and says when to ask for a replay. What has been sent is thus either
// delivered once and in order, or named as lost.
//
// The wire is ZMTP 3.0 with the NULL mechanism, by the connections of
// github.com/go-zeromq/zmq4. Its sockets are not used: they allocate whatever
// size a peer announces, queue without bound for a slow subscriber, let one
// silent peer hold up all that come after it, and race when they close.
package kvevents
