// Package picker is the endpoint picker (EPP) as pure code: given a request
// and a snapshot of the pool it says which endpoint serves it, and why.
//
// It is the part of llm-d-router's EPP that decides. Documents 002 (docs/documents.md; chapter
// 10), 003 and 004 describe it; recorded decisions of the real binary
// (v0.10.0) are replayed against it in internal/parity, and docs/parity.md
// lists every line where it deliberately differs.
//
// One request takes four calls:
//
//	Prepare  reads the request: model rewrite, objective, fairness id. It
//	         returns what must be asked outside (tokenisation, a remote
//	         score); the driver asks, and answers with value, error or timeout.
//	Pick     is pure. It runs subset, screeners, producers, admitters and the
//	         scheduling profiles and returns a Decision that, when asked for,
//	         holds everything: candidates, what each filter removed, the raw
//	         and weighted score of each scorer for each endpoint, ties.
//	Commit   alone changes state: prefix index, in-flight counts, LRUs.
//	Release  ends what Commit began, exactly once.
//
// A preview is Prepare and Pick without Commit.
//
// Endpoints are addressed by their index in the View, and scores are flat
// slices beside it, so that one decision over a thousand endpoints costs
// microseconds. Plug-ins are Go interfaces, one per kind; a Registry maps
// type names of the configuration to factories. Package plugins holds those
// of the ecosystem, and a program can add its own.
package picker
