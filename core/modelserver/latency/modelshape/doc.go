// Package modelshape describes models: their layers, heads and experts, the types of their weights, and therefore the
// memory and the arithmetic that a token takes.
package modelshape
