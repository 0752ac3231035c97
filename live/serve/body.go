package serve

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// The defaults of BodyLimits.
const (
	DefaultBodyIdle  = 30 * time.Second
	DefaultBodyTotal = 5 * time.Minute
)

// BodyLimits bound the time in which a request's body must arrive. Zero means the default, a negative value no limit.
type BodyLimits struct {
	// Idle is the longest pause between two pieces, Total the time for the whole body.
	Idle, Total time.Duration
}

func (l BodyLimits) withDefaults() BodyLimits {
	const never = 1 << 62
	for _, x := range []struct {
		to *time.Duration
		d  time.Duration
	}{{&l.Idle, DefaultBodyIdle}, {&l.Total, DefaultBodyTotal}} {
		switch {
		case *x.to == 0:
			*x.to = x.d
		case *x.to < 0:
			*x.to = never
		}
	}
	return l
}

// SlowBodyError is the error of reading a body that arrived too slowly.
type SlowBodyError struct {
	Limit time.Duration
	Idle  bool
}

func (e *SlowBodyError) Error() string {
	if e.Idle {
		return fmt.Sprintf("the request's body came to a halt: nothing came for %v", e.Limit)
	}
	return fmt.Sprintf("the request's body was not whole after %v", e.Limit)
}

// Handler applies the limits to the bodies of all requests to next. Reading a body that is too slow returns a
// SlowBodyError.
func (l BodyLimits) Handler(next http.Handler) http.Handler {
	l = l.withDefaults()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		b := &body{ReadCloser: r.Body, limits: l, until: time.Now().Add(l.Total)}
		b.timer = time.AfterFunc(min(l.Idle, l.Total), func() { b.cut(w) })
		defer b.end()
		r.Body = b
		next.ServeHTTP(w, r)
	})
}

// BodyWhole ends the limits on a request's body. The rest of it may take any time.
func BodyWhole(r *http.Request) {
	if b, ok := r.Body.(*body); ok {
		b.end()
	}
}

type body struct {
	io.ReadCloser
	limits BodyLimits
	until  time.Time
	timer  *time.Timer

	mu   sync.Mutex
	over bool // the limits no longer apply; the response's writer may be invalid
}

// cut ends a waiting Read.
func (b *body) cut(w http.ResponseWriter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		// An error means that the writer has no connection to cut.
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	}
}

func (b *body) end() {
	b.timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}

func (b *body) counts() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.over
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case !b.counts():
	case err == nil && b.limits.Idle < b.limits.Total:
		b.timer.Reset(min(b.limits.Idle, time.Until(b.until)))
	case errors.Is(err, os.ErrDeadlineExceeded):
		if time.Until(b.until) > 0 {
			return n, &SlowBodyError{Limit: b.limits.Idle, Idle: true}
		}
		return n, &SlowBodyError{Limit: b.limits.Total}
	case err != nil:
		b.end()
	}
	return n, err
}
