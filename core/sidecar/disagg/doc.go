// Package disagg decides for the routing sidecar, the proxy in front of a
// decode server: which servers a request is sent to, with which bodies, and
// what their answers mean.
//
// A ClientRequest is one request there. It is told what arrives (a leg's status,
// its body, its failure) and says what is to be done: call a leg, collect
// its answer, hand it to the client, or answer at once. Prefill elsewhere is
// asked for by the header x-prefiller-host-port, which the endpoint picker
// sets; how the KV cache travels, and what the legs' bodies say of it, is the
// connector's matter (core/sidecar/connector).
//
// Before the prefill, images and sounds may go to encode servers (Config.Encoder,
// x-encoder-hosts-ports). Legs that run at once, those and the two of parallel
// MoRI-IO, are marked Concurrent.
//
// With Sessions the sidecar works as document 002's: it keeps the KV handles of
// conversations, prefills only new ones, and sends the decode server nothing
// but what is new.
//
// Nothing here knows sockets. live/sidecar and virtual drive the same ClientRequest.
package disagg
