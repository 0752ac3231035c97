// Package kv names blocks of KV cache and says what happens to them.
//
// A prompt is cut into blocks of tokens and every block has a key that covers
// all tokens before it (Hasher). Model servers say which blocks they stored
// and dropped (Event), under a Topic. The packages below use these words:
// kvcodec reads and writes events as they travel, kvfeed puts one publisher's
// messages into order, and kvindex keeps which pod holds which block.
//
// There are two names for one block. The engine's own hash (EngineHash) is an
// opaque alias: any function will do, as long as the events carry tokens and
// parent. The Key is computed from the tokens by whoever needs it, by one
// rule, so that the engine, the endpoint picker and the KV-cache manager agree
// without talking to one another.
//
// Nothing here or below reads a clock, a socket or a file.
//
// Sources: document 003 (docs/documents.md; "LLM-D KV-Cache Manager", "Flow 2: KV Cache Aware
// Routing"); vLLM's KV events; the precise-prefix-cache-producer of
// llm-d-router v0.10.0, whose recorded scores are this package's tests.
package kv
