package gateway

import (
	"cmp"
	"strconv"
	"time"

	"github.com/windtunnel/windtunnel/core/wire/header"
)

// Attempts is how a route's requests are attempted: what its policies say, and what Envoy
// does by itself where they say nothing.
type Attempts struct {
	// Whole bounds the exchange from the request's end on, Try each attempt; 0 does not.
	Whole, Try time.Duration
	// Retries is how often Envoy tries a request again, under the conditions On. Codes
	// are the statuses of its condition retriable-status-codes.
	Retries int
	On      []string
	Codes   []int
	// Base is the most that is waited before the first retry. It doubles each time, up to
	// Max, and what is waited is drawn from 0 up.
	Base, Max time.Duration
}

// Attempts are the route's. Without retries one attempt is the whole exchange; Envoy
// ignores a limit of one attempt that is no shorter than that of all.
func (r *Route) Attempts() Attempts {
	var a Attempts
	if r.Timeout != nil {
		a.Whole = time.Duration(*r.Timeout)
	}
	if r.Try != nil {
		a.Try = time.Duration(*r.Try)
	}
	x := r.Retrying
	if x == nil {
		if a.Try > 0 && (a.Whole == 0 || a.Try < a.Whole) {
			a.Whole = a.Try
		}
		a.Try = 0
		return a
	}
	a.Retries, a.On, a.Codes = x.Retries, x.On, x.Codes
	a.Try = cmp.Or(a.Try, time.Duration(x.Try))
	a.Base = cmp.Or(time.Duration(x.Base), 25*time.Millisecond)
	a.Max = min(10*a.Base, max(a.Base, time.Second))
	if x.Max > 0 {
		a.Max = max(time.Duration(x.Max), a.Base)
	}
	return a
}

// With returns what counts for a request with these headers: those by which the endpoint picker
// hands on what a client asked for.
func (a Attempts) With(h header.List) Attempts {
	if ms, err := strconv.ParseInt(h.Get("x-envoy-upstream-rq-timeout-ms"), 10, 32); err == nil && ms >= 0 {
		a.Whole = time.Duration(ms) * time.Millisecond
	}
	if n, err := strconv.Atoi(h.Get("x-envoy-max-retries")); err == nil && n >= 0 && len(a.On) > 0 {
		a.Retries = n
	}
	if a.Whole > 0 && a.Try >= a.Whole {
		a.Try = 0
	}
	return a
}
