// Package enginecore is what all requests of one model server share, as a
// machine: its engine with what joins it to other servers. vLLM's EngineCore
// has the same part, and the KV connector in it.
//
// Core decides who waits for a KV cache that is still to be computed, and for how
// long; who gives a cache back, and when; what blocks a sender; whom a server
// must have heard of before it reserves blocks for what it has; and whether the
// server lives. The way of a completion whose prompt another server has computed:
//
//	driver   Submit of a Sequence that names the Remote
//	Core     greets a server that has never answered             → Ask
//	driver   puts the question, and hands in the answer: Replied
//	Core     gives the completion to its engine; when its blocks
//	         are there, it asks for the cache                    → Ask
//	holder   Asked: it has the cache, or will                    → Answer
//	Core     has the bytes moved                                 → Move
//	Network  shares the wires among all that moves               → Moved
//	Core     lets the engine go on, and then the holder          → Ask
//
// Network joins the servers of a fleet: the wires between them, and the external
// cache beside them.
//
// Drivers carry out effects and decide nothing: live/modelserver in wall time,
// virtual in virtual time.
package enginecore
