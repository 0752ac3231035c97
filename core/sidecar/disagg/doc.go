// Package disagg decides for the routing sidecar, the proxy in front of a decode server. It decides which servers
// receive a request and with which bodies, and it interprets their answers.
//
// A ClientRequest is one request at the sidecar. It receives what arrives (a leg's status, its body, its failure) and
// returns what the driver does next: call a leg, collect its answer, pass it to the client, or answer at once. The
// header x-prefiller-host-port, which the endpoint picker sets, asks for a prefill on another server. The connector
// (core/sidecar/connector) decides how the KV cache is transferred and what the legs' bodies say about it.
//
// Before the prefill, images and sounds may go to encode servers (Config.Encoder, x-encoder-hosts-ports). Concurrent
// marks legs that run at the same time: those to encode servers and the two of parallel MoRI-IO.
//
// With Sessions the sidecar works as document 002's: it keeps the KV handles of conversations, prefills only new
// conversations, and sends the decode server nothing but the new messages.
//
// The package uses no sockets. live/sidecar and virtual drive the same ClientRequest.
package disagg
