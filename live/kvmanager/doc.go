// Package kvmanager is document 003's LLM-D KV-Cache Manager: it takes the KV
// events of a fleet of model servers over ZMQ, keeps the index of which pod
// holds which block, and scores pods for a prompt over HTTP.
//
//	POST /api/v1/score           which of these pods holds most of this prompt
//	GET  /api/v1/cache/state     the fleet's cache in numbers
//	GET  /api/v1/cache/pod/{id}  one pod's
//	GET  /healthz, /readyz, /metrics
//
// Bodies, metric names, log keys and environment variables are the document's.
// Everything that decides is core/kv; here are one goroutine that owns the
// index, a subscriber and an HTTP server. Scoring looks the index up without a
// lock and never waits for that goroutine.
//
// Where the document is silent: a hit is a block in the longest unbroken run
// from the prompt's first block, as an engine can use no other; rates are cut,
// not rounded, to two digits, which gives the document's 0.66 for two of
// three; a pod's hit rate is over the prompts for which it was recommended.
package kvmanager
