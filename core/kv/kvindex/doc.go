// Package kvindex keeps which pod holds which block of KV cache. An Index keeps, for each key, the pods that hold it,
// and scores pods by the longest unbroken run of a prompt's blocks that they hold. Where the sources leave open what to
// do (unknown parents, duplicates, removals), Index's comment has the rules.
//
// Sources: document 003 (docs/documents.md; "LLM-D KV-Cache Manager", "Flow 2: KV Cache Aware Routing") and the
// precise-prefix-cache-producer of llm-d-router v0.10.0.
package kvindex
