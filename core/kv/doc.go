// Package kv knows which pod holds which block of KV cache.
//
// A prompt is cut into blocks of tokens and every block has a key that covers
// all tokens before it (Hasher). Model servers say which blocks they stored
// and dropped (Event, in vLLM's msgpack or document 003's JSON). An Index
// keeps, for each key, the pods that hold it, and scores pods by the longest
// unbroken run of a prompt's blocks that they hold. A Feed watches one
// publisher's sequence numbers and says when to ask for a replay.
//
// There are two names for one block. The engine's own hash (EngineHash) is an
// opaque alias: any function will do, as long as the events carry tokens and
// parent. The Key is computed from the tokens by whoever needs it, by one
// rule, so that the engine, the endpoint picker and the KV-cache manager agree
// without talking to one another.
//
// Nothing here reads a clock, a socket or a file. The rules that the package
// follows where its sources are silent stand beside the code that has them:
// unknown parents, duplicates and removals in Index, gaps and restarts in
// Feed, events without a parent in Named.
//
// Sources: document 003 ("LLM-D KV-Cache Manager", "Flow 2: KV Cache Aware
// Routing"); vLLM's KV events; the precise-prefix-cache-producer of
// llm-d-router v0.10.0, whose recorded scores are this package's tests.
package kv
