// Package kvevents carries KV-cache events over ZMQ, as vLLM, llm-d and document 003 (docs/documents.md#document-003)
// do.
//
// A Publisher sends the events of one model server's cache: three frames (topic, sequence number, payload), one batch
// every 100 ms. Its PUB socket binds (endpoint pickers dial port 5557) or connects (to a central subscriber, port
// 5555 in document 003). A ROUTER socket replays recent messages.
//
// A Subscriber receives such messages on a SUB socket that binds or that dials each pod. It reconnects by itself. One
// kvfeed.Feed per pod puts the messages in order and decides when to ask for a replay. Each message is therefore
// either delivered once and in order, or reported as lost.
//
// The wire format is ZMTP 3.0 with the NULL mechanism, over the connections of github.com/go-zeromq/zmq4. Its sockets
// are not used: they allocate whatever size a peer announces, queue without a bound for a slow subscriber, let one
// silent peer block all later ones, and have data races when they close.
package kvevents
