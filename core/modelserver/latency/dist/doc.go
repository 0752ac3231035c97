// Package dist reads and draws distributions of spans, counts and factors: what
// users write as "100ms..30s" or "50ms±10%". Whatever the processor, one draw
// gives one value.
package dist
