// Package kvcodec reads and writes KV-cache events as they travel: vLLM's
// msgpack (Decoder, AppendBatch) and document 003's JSON (DecodeJSON,
// AppendJSON). What comes from outside is bounded by Limits.
package kvcodec
