package proxy

import "github.com/windtunnel/windtunnel/core/epp/stream"

// The statuses of Envoy's own answers.
const (
	StatusLost     = 503 // nothing answers
	StatusTimedOut = 504
	StatusTooFast  = 429
)

// What Envoy calls the ways in which an attempt ends without an answer.
const (
	Terminated = "connection termination"    // of an HTTP/1.1 connection
	Reset      = "remote reset"              // of a stream over HTTP/2
	Refused    = "remote connection failure" // no connection was made
	Overflow   = "overflow"                  // a breaker is open; nothing is tried again then
)

// Ended returns what Envoy calls the end of a connection to a model server that speaks HTTP/2, or HTTP/1.1.
func Ended(http2 bool) string {
	if http2 {
		return Reset
	}
	return Terminated
}

// Lost is Envoy's answer where the last of so many attempts ended before response headers came.
func Lost(reason string, attempts int) stream.Answer {
	retried := ""
	if attempts > 1 {
		retried = "retried and the latest "
	}
	return answer(StatusLost,
		"upstream connect error or disconnect/reset before headers. "+retried+"reset reason: "+reason)
}

// NoServer is Envoy's answer where no model server is well.
func NoServer() stream.Answer { return answer(StatusLost, "no healthy upstream") }

// TimedOut is Envoy's answer where a route's time for the model server is over.
func TimedOut() stream.Answer { return answer(StatusTimedOut, "upstream request timeout") }

// TooFast is Envoy's answer to a request beyond the rate limit of its route.
func TooFast() stream.Answer { return answer(StatusTooFast, "local_rate_limited") }

// NoPicker is Envoy's answer to a request whose picker is gone.
func NoPicker() stream.Answer { return answer(StatusLost, "") }

// SlowPicker is Envoy's answer where the picker's time for its answer is over.
func SlowPicker() stream.Answer { return answer(StatusTimedOut, "") }

func answer(status int, text string) stream.Answer {
	a := stream.Answer{Status: status}
	if text != "" {
		a.Body = []byte(text)
	}
	return a
}
