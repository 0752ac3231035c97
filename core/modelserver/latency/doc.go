// Package latency says how long an engine's step takes on hardware that is not
// there: so many prompt tokens to prefill and so many sequences to decode, on a
// model, an accelerator, a tensor parallel group and the wires between its ranks.
//
// Four kinds of answer exist: constants, per-token coefficients, measured
// tables, and a roofline computed from first principles. Whatever the kind, the
// answer is whole nanoseconds made by integer arithmetic, so that a run is the
// same on every processor; and no table or coefficient set may be faster than
// the hardware's peak.
//
// The facts that these answers need stand below: modelshape has the models,
// hardware the accelerators and their memory, dist the distributions that users
// write.
package latency
