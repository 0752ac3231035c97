//go:build !race

package stack

// raced says that the race detector looks on, which makes everything several times slower.
const raced = false
