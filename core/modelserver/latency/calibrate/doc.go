// Package calibrate works out a model server's step times from what a client sees of
// it: which requests to send (a Plan), and the table that their times come to. It
// sends nothing itself.
//
// The server is idle but for the probes. A prompt's time is that to its first token, less
// what a request takes that computes nothing; a decode step's is the median gap
// between tokens while all requests of a batch decode. What the server's own front end
// takes for a request with a prompt is in the prompt's time, since a client cannot tell it
// from the step.
package calibrate
