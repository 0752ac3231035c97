// Package modelshape has the models: how many layers, heads and experts they
// have, in which types their weights are kept, and so how much memory and
// arithmetic a token takes.
package modelshape
