// Package latency returns the duration of an engine's steps on simulated hardware: for a number of prompt tokens to
// prefill and of sequences to decode, on a model, an accelerator, a tensor-parallel group and the wires between its
// ranks.
//
// There are four kinds of timers: constants, per-token coefficients, measured tables, and a roofline computed from
// first principles. All of them return whole nanoseconds from integer arithmetic, so that a run is the same on every
// processor. No table or coefficient set may be faster than the hardware's peak.
//
// The data for the timers is in packages below: modelshape has the models, hardware the accelerators and their memory,
// and dist the distributions that users write.
package latency
