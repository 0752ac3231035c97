// Package parity replays recorded decisions of the real endpoint picker
// (llm-d-router v0.10.0, no Kubernetes) against core/epp, of which it is a
// driver as live/epp and virtual are: messages of ext_proc streams, pages of
// model servers, endpoints and objects go in, in virtual time and without a
// socket. testdata holds the recordings: configuration, endpoint state,
// requests, and what the real one answered. Random ties are forced to the
// recorded choice, after checking that it was one of the best.
//
// deviations.go lists every line on which windtunnel deliberately differs;
// docs/parity.md gives the reasons.
package parity
