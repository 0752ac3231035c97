// Package kvmanager is the LLM-D KV-Cache Manager of document 003 (docs/documents.md#document-003). It receives the KV
// events of many model servers over ZMQ, keeps an index from blocks to the pods that hold them, and scores pods for a
// prompt over HTTP.
//
//	POST /api/v1/score           which of these pods holds most of this prompt
//	GET  /api/v1/cache/state     the cache of all pods in numbers
//	GET  /api/v1/cache/pod/{id}  the cache of one pod
//	GET  /healthz, /readyz, /metrics
//
// Bodies, metric names, log keys and environment variables are the document's. All decisions are in core/kv. This
// package has a subscriber, an HTTP server and the index's driver. Scoring reads the index without a lock and never
// waits for the driver.
//
// Where the document leaves a choice: a hit is a block in the longest unbroken run from the prompt's first block,
// because an engine can use no other; rates are truncated, not rounded, to two digits, which gives the document's 0.66
// for two of three; a pod's hit rate counts the prompts for which the manager recommended that pod.
package kvmanager
