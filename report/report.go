// Package report turns the one stream of flow events into what people and
// programs read: lines on a terminal as things happen, a recording of one JSON
// object per line that can be replayed, and a summary with outcomes, counts
// and percentiles.
//
// Everything here is a reader. A live run, a run in virtual time and the
// replay of a file feed the same readers the same events, so what is printed
// about them can be compared line by line. Session puts the readers together
// the way that `windtunnel run`, `sim` and `replay` want them.
package report
