// Package terminal formats text for people: it escapes text from outside, breaks lines between words, colours text, and
// prints numbers with units.
package terminal
