// Package calibrate derives a model server's step times from a client's measurements: it returns the requests to send
// (a Plan), and a table of their times. It sends nothing itself.
//
// The server is idle except for the probes. A prompt's time is the time to its first token, minus the time of a request
// that computes nothing. A decode step's time is the median gap between tokens while all requests of a batch decode. A
// prompt's time includes the time of the server's own front end for a request with a prompt, because a client cannot
// separate it from the step.
package calibrate
