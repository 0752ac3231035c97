// Package parity replays recorded decisions of the real endpoint picker (llm-d-router v0.10.0) with core/epp, and
// compares the answers. Like live/epp and virtual, it is a driver of core/epp: it passes in messages of ext_proc
// streams, model servers' metrics pages, endpoints and objects, in virtual time and without a socket. The recordings
// in testdata have the configuration, the endpoints' state, the requests and the real picker's answers. Random ties
// are forced to the recorded choice, after a check that it was one of the best.
//
// deviations_test.go lists every deliberate difference; docs/parity.md has the reasons.
package parity
