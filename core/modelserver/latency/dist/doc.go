// Package dist parses and samples distributions of spans, counts and factors, which users write as "100ms..30s" or
// "50ms±10%". One draw gives the same value on every processor.
package dist
