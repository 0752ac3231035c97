// Package parity replays recorded decisions of the real endpoint picker
// (llm-d-router v0.10.0, no Kubernetes) against core/picker, in virtual time
// and without a socket. testdata holds the recordings: configuration, endpoint
// state, requests, and what the real one answered. Random ties are forced to
// the recorded choice, after checking that it was one of the best.
//
// deviations.go lists every line on which windtunnel deliberately differs;
// docs/parity.md gives the reasons.
package parity
