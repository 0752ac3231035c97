// Package terminal writes what people read on one: text from outside that cannot
// steer it, lines broken between words, colours, numbers with their units.
package terminal
