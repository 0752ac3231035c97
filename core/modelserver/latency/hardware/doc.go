// Package hardware describes the hardware of models: accelerators, the fabric between the ranks of a tensor-parallel
// group, the memory that weights, activations and KV cache take, and the floor of the duration of steps.
package hardware
