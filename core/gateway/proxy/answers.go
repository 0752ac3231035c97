package proxy

import "github.com/windtunnel/windtunnel/core/epp/stream"

// The statuses of Envoy's own answers.
const (
	StatusLost     = 503 // nothing answers
	StatusTimedOut = 504
	StatusTooFast  = 429
)

// Envoy's terms for the ways in which an attempt ends without an answer.
const (
	Terminated = "connection termination"    // of an HTTP/1.1 connection
	Reset      = "remote reset"              // of a stream over HTTP/2
	Refused    = "remote connection failure" // no connection was made
	Overflow   = "overflow"                  // a breaker is open; Envoy then retries nothing
)

// Ended returns Envoy's term for the end of a connection to a model server that speaks HTTP/2 or HTTP/1.1.
func Ended(http2 bool) string {
	if http2 {
		return Reset
	}
	return Terminated
}

// Lost returns Envoy's answer where the last of these attempts ended before response headers came.
func Lost(reason string, attempts int) stream.Answer {
	retried := ""
	if attempts > 1 {
		retried = "retried and the latest "
	}
	return answer(StatusLost,
		"upstream connect error or disconnect/reset before headers. "+retried+"reset reason: "+reason)
}

// NoServer returns Envoy's answer where no model server is healthy.
func NoServer() stream.Answer { return answer(StatusLost, "no healthy upstream") }

// TimedOut returns Envoy's answer where a route's timeout for the model server expires.
func TimedOut() stream.Answer { return answer(StatusTimedOut, "upstream request timeout") }

// TooFast returns Envoy's answer to a request beyond the rate limit of its route.
func TooFast() stream.Answer { return answer(StatusTooFast, "local_rate_limited") }

// NoPicker returns Envoy's answer to a request whose picker is gone.
func NoPicker() stream.Answer { return answer(StatusLost, "") }

// SlowPicker returns Envoy's answer where the picker's timeout expires.
func SlowPicker() stream.Answer { return answer(StatusTimedOut, "") }

func answer(status int, text string) stream.Answer {
	a := stream.Answer{Status: status}
	if text != "" {
		a.Body = []byte(text)
	}
	return a
}
