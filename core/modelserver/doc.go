// Package modelserver simulates a model server's logic between the wire and the engine. Wall time and virtual time
// share it.
//
//	Reader    parses a request's headers and body: a Request, or the error to answer
//	Response  the life of one request in the server, as a machine: plain or held
//	          open, injected faults, the engine's input, what is sent and when,
//	          and the end
//	Encoder   the bytes of the answer, in the format of one API
//
// All APIs' bodies become a Request. Later stages never read the body again, so that a Request can also come from
// another source.
//
// Drivers carry out a Response's effects, and give it the input from the engine, the body and the clock:
// live/modelserver with sockets, virtual with events.
package modelserver
