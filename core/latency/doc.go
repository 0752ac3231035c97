// Package latency says how long things take on hardware that is not there.
//
// Its core is the time of one engine step: so many prompt tokens to prefill
// and so many sequences to decode, on a model, an accelerator, a tensor
// parallel group and the wires between its ranks. Four kinds of answer exist:
// constants, per-token coefficients, measured tables, and a roofline computed
// from first principles. Whatever the kind, the answer is whole nanoseconds
// made by integer arithmetic, so that a run is the same on every processor;
// and no table or coefficient set may be faster than the hardware's peak.
//
// Around it are the facts that these answers need: a catalogue of models and
// accelerators, the memory that weights, activations and KV cache take, and
// Dist, the distribution that users write as "100ms..30s" or "50ms±10%".
package latency
