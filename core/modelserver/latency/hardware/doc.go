// Package hardware has what models run on: accelerators, the fabric between the
// ranks of a tensor parallel group, the memory that weights, activations and KV
// cache take, and the floor below which no step can be.
package hardware
