// Package enginecore holds the state that all requests of one model server share, as a machine: its engine, and its
// connections to other servers. vLLM's EngineCore has the same part, with the KV connector in it.
//
// Core decides which server waits for a KV cache that is still to be computed, and for how long; when a cache is given
// back; what blocks a sender; from which servers an answer must come before the engine reserves blocks for their
// caches; and whether the server is alive. A completion whose prompt another server has computed takes these steps:
//
//	driver   Submit of a Sequence that names the Remote
//	Core     greets a server that has never answered             → Ask
//	driver   sends the question, and passes on the answer: Replied
//	Core     gives the completion to its engine; when its blocks
//	         are reserved, it asks for the cache                 → Ask
//	holder   Asked: it has the cache, or will                    → Answer
//	Core     requests the transfer of the bytes                  → Move
//	Network  shares the wires among all transfers                → Moved
//	Core     lets the engine continue, and releases the cache    → Ask
//
// Network connects the servers of a fleet: the wires between them, and the external cache beside them.
//
// Drivers carry out effects and decide nothing: live/modelserver in wall time, virtual in virtual time.
package enginecore
