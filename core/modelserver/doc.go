// Package modelserver is what a model server does of itself, between the wire
// and the engine, in wall and in virtual time alike.
//
//	Reader    reads a request's headers and body: Request, or the error to answer
//	Response  one request's way through the server as a machine: held open or
//	          plain, what goes wrong with it on purpose, what the engine is asked
//	          for, what is sent and when, and how it ends
//	Encoder   what is sent, byte by byte, in the terms of one API
//
// A Request is what any API's body becomes. Nothing behind it reads the body
// again, so that it can come from elsewhere.
//
// Drivers carry out a Response's effects and tell it what the engine, the body
// and the clock have brought: live/modelserver with sockets, virtual with events.
package modelserver
