// Package report turns the stream of flow events of a run into reports: lines on a terminal as things happen, a
// recording that can be replayed (one JSON object per line), and a summary with outcomes, counts and percentiles.
//
// A live run, a run in virtual time and the replay of a file feed the same readers the same events, so their reports
// can be compared line by line. Session combines the readers for `windtunnel run`, `sim` and `replay`.
package report
