package gateway

import (
	"cmp"
	"strconv"
	"time"

	"github.com/windtunnel/windtunnel/core/wire/header"
)

// Attempts says how Envoy attempts a route's requests: by the route's policies, and by Envoy's defaults where they are
// silent.
type Attempts struct {
	// Whole limits the exchange, from the request's end on, and Try each attempt; 0 is no limit.
	Whole, Try time.Duration
	// Retries is how often Envoy retries a request, under the conditions On. Codes are the statuses for its condition
	// retriable-status-codes.
	Retries int
	On      []string
	Codes   []int
	// Base is the longest wait before the first retry. It doubles each time, up to Max. Each wait is drawn between 0
	// and this limit.
	Base, Max time.Duration
}

// Attempts returns the route's attempts. Without retries, one attempt is the whole exchange. Envoy ignores a limit for
// one attempt that is not shorter than the limit for all.
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

// With returns the attempts for a request with these headers, by which the endpoint picker passes on a client's wishes.
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
