// Package epp is an endpoint picker (EPP) as one machine. Messages of the ext_proc streams, the model servers' metrics
// pages, KV events and Kubernetes objects enter; decisions leave.
//
// Machine holds what all requests share: core/epp/picker with its plug-ins, flow control, the indexes of KV blocks, and
// the schedule of scrapes. Stream is one request's ext_proc stream: core/epp/stream with what the picker adds to
// requests and responses. A request takes this way:
//
//	Stream    has headers and body, and parses the body              → Decide
//	driver    hands the Stream's Request to the Machine: Arrive
//	Machine   Prepare: do plug-ins need something from outside?      → Ask
//	driver    asks, and hands in the answers: Answered
//	Machine   flow control, view, pick, commit                       → Decided
//	Stream    turns the decision into messages, shows the plug-ins
//	          the response, and sends Done exactly once
//
// The Stream does costly work that needs no shared state (parsing, hashing, tokenising, reading responses), and the
// Machine gets the result. Everything that changes the Machine is a Message through one Door, in one order. A log of
// these messages is a complete recording of the picker: replayed into another Machine, it gives the same effects.
//
// Drivers carry out effects and decide nothing: live/epp in wall time, virtual in virtual time, internal/parity against
// recordings of the real EPP.
//
// Begin with Machine, Message and Kind.
package epp
