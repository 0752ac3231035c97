// Package kv names blocks of KV cache and describes their events.
//
// A prompt is cut into blocks of tokens. Every block has a key that covers all tokens before it (Hasher). Model servers
// publish which blocks they stored and dropped (Event), under a Topic. The packages below use these types: kvcodec
// reads and writes events in their wire formats, kvfeed puts one publisher's messages into order, and kvindex keeps
// which pod holds which block.
//
// A block has two names. The engine's own hash (EngineHash) is an opaque alias: any function will do, as long as the
// events carry tokens and parent. Each reader computes the Key from the tokens by one rule, so that the engine, the
// endpoint picker and the KV-cache manager agree without communicating.
//
// Nothing here or below reads a clock, a socket or a file.
//
// Sources: document 003 (docs/documents.md; "LLM-D KV-Cache Manager", "Flow 2: KV Cache Aware Routing"); vLLM's KV
// events; the precise-prefix-cache-producer of llm-d-router v0.10.0, whose recorded scores are this package's tests.
package kv
