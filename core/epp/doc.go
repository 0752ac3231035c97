// Package epp is an endpoint picker (EPP) as one machine: everything between
// the messages of the ext_proc streams, the pages of the model servers, KV
// events and objects on the one side, and decisions on the other.
//
// Machine holds what all requests share: core/epp/picker with its plug-ins, flow
// control, the indexes of KV blocks, and the schedule by which metrics are
// scraped. Stream is one request's ext_proc stream: core/epp/stream with what the
// picker adds to requests and responses. The way of a request:
//
//	Stream    headers and body are here; the body is parsed          → Decide
//	driver    hands the Stream's Request to the Machine: Arrive
//	Machine   Prepare: do plug-ins need something from outside?      → Ask
//	driver    asks, and hands in what came back: Answered
//	Machine   flow control, view, pick, commit                       → Decided
//	Stream    turns the decision into messages, lets the plug-ins see
//	          the response, and says Done exactly once
//
// Costly work that needs no common state (parsing, hashing, tokenising, reading
// responses) is the Stream's, and enters the Machine as its result. Everything that changes the
// Machine is a Message through one Door, in one order: whoever writes down what
// passes there has a complete recording of the picker, and who plays it into
// another Machine gets the same effects.
//
// Drivers carry out effects and decide nothing: live/epp in wall time, virtual
// in virtual time, internal/parity against recordings of the real EPP.
package epp
