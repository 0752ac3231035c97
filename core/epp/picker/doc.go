// Package picker is the endpoint picker (EPP) as pure code. Given a request and a snapshot of the pool, it returns the
// endpoint that serves the request, and the reasons.
//
// It is the part of llm-d-router's EPP that decides. Documents 002 (docs/documents.md; chapter 10), 003 and 004
// describe it. internal/parity replays recorded decisions of the real binary (v0.10.0) against it, and docs/parity.md
// lists every deliberate difference.
//
// One request takes four calls:
//
//	Prepare  reads the request: model rewrite, objective, fairness id. It
//	         returns calls to services outside (tokenisation, a remote score);
//	         the driver makes them and returns value, error or timeout.
//	Pick     is pure. It runs subset, screeners, producers, admitters and the
//	         scheduling profiles and returns a Decision. On request the Decision
//	         holds everything: candidates, what each filter removed, the raw
//	         and weighted score of each scorer for each endpoint, ties.
//	Commit   alone changes state: prefix index, in-flight counts, LRUs.
//	Release  ends what Commit began, exactly once.
//
// A preview is Prepare and Pick without Commit.
//
// Endpoints are addressed by their index in the View, and scores are flat slices beside it, so that a decision over a
// thousand endpoints takes microseconds. Plug-ins are Go interfaces, one per kind (plugin.go). A Registry maps the
// configuration's type names to factories. Package plugins has the ecosystem's plug-ins, and a program can add its own.
// Begin with Picker and Decision.
package picker
