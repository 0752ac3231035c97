//go:build unix

package envoy

import (
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/gateway"
)

// deadEndpoint is an address where nothing listens.
const deadEndpoint = "127.0.0.1:9"

// refuses answers 503 to everything, after reading it.
func refuses(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	http.Error(w, "no", http.StatusServiceUnavailable)
}

// resets reads some of the request and breaks the connection. It takes the
// connection away from the server: that would first wait for the rest of the
// body, which never comes while the request is held.
func resets(w http.ResponseWriter, r *http.Request) {
	io.ReadFull(r.Body, make([]byte, 4))
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2 has its own way
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// thrice attempts a request three times.
var thrice = gateway.Attempts{Retries: 2, Codes: []int{503},
	On:   []string{"connect-failure", "refused-stream", "reset", "retriable-status-codes"},
	Base: 25 * time.Millisecond, Max: 250 * time.Millisecond}

// What Envoy does when an attempt fails, with a policy of three attempts.
func TestRetry(t *testing.T) {
	t.Parallel()
	good := (&fakeServer{}).start(t)
	holds := (&fakeServer{handle: holding(10*time.Millisecond, 8)}).start(t)
	refusing := (&fakeServer{handle: refuses}).start(t)
	resetting := (&fakeServer{handle: resets}).start(t)

	for _, tc := range []struct {
		name         string
		routing      Routing
		http2        bool
		destinations string   // what the picker answers
		endpoints    []string // of the pool
		held         bool
		bytes        int64
		code         int
		attempts     int
		servedBy     string
	}{
		{"no connection, fallback", OverrideHost, false, deadEndpoint, []string{deadEndpoint, good.addr}, false, 8, 200,
			2, good.addr},
		{"503, fallback", OverrideHost, false, refusing.addr, []string{refusing.addr, good.addr}, false, 8, 200, 2,
			good.addr},
		{"503, fallback, h2c", OverrideHost, true, refusing.addr, []string{refusing.addr, good.addr}, false, 8, 200, 2,
			good.addr},
		{"reset, fallback", OverrideHost, false, resetting.addr, []string{resetting.addr, good.addr}, false, 8, 200, 2,
			good.addr},
		{"the picker's second choice first", OverrideHost, false, refusing.addr + "," + good.addr,
			[]string{refusing.addr, resetting.addr, good.addr}, false, 8, 200, 2, good.addr},
		{"a body at the limit is sent again", OverrideHost, false, refusing.addr, []string{refusing.addr, good.addr},
			false, 4 << 20, 200, 2, good.addr},
		{"a larger one is not", OverrideHost, false, refusing.addr, []string{refusing.addr, good.addr}, false, 6 << 20,
			503, 1, refusing.addr},
		{"held, no connection", OverrideHost, false, deadEndpoint, []string{deadEndpoint, holds.addr}, true, 8, 200, 2,
			holds.addr},
		{"held, reset", OverrideHost, false, resetting.addr, []string{resetting.addr, holds.addr}, true, 8, 200, 2,
			holds.addr},
		{"held, reset, h2c", OverrideHost, true, resetting.addr, []string{resetting.addr, holds.addr}, true, 8, 200, 2,
			holds.addr},
		{"an endpoint that the pool has not got", OverrideHost, false, deadEndpoint, []string{good.addr}, false, 8, 200,
			1, good.addr},
		{"one address is tried again", OriginalDst, false, refusing.addr, nil, false, 8, 503, 3, refusing.addr},
		{"one address is dialled again", OriginalDst, false, deadEndpoint, nil, false, 8, 503, 3, deadEndpoint},
		{"a list is no address", OriginalDst, false, refusing.addr + "," + good.addr, nil, false, 8, 503, 1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			picker := (&fakePicker{destination: func() string { return tc.destinations }, held: tc.held,
				tail: "tail"}).start(t)
			c := onePool()
			c.Pools[0].Picker.Addresses = []string{picker.addr}
			c.Pools[0].Routing = tc.routing
			c.Pools[0].HTTP2 = tc.http2
			c.Pools[0].Endpoints = tc.endpoints
			c.Pools[0].Retry = &thrice
			p := startEnvoy(t, c)
			code, body := newClient(t, p, false).post(io.LimitReader(zeros{}, tc.bytes))
			r := lastAccess(t, p)
			if code != tc.code || r.Status != tc.code || r.Attempts != tc.attempts || r.Upstream != tc.servedBy {
				t.Errorf("got %d, %d attempts, upstream %s; want %d, %d, %s\n%s\n%+v",
					code, r.Attempts, r.Upstream, tc.code, tc.attempts, tc.servedBy, body, r)
			}
			if code == 200 && !strings.HasPrefix(body,
				map[bool]string{false: tc.servedBy, true: "first tail"}[tc.held]) {
				t.Errorf("body %q", body)
			}
			if code == 200 && !slices.Equal(picker.servedBy(), []string{tc.servedBy}) {
				t.Errorf("the picker was told %q served, want %s", picker.servedBy(), tc.servedBy)
			}
			if picker.seen.Load() != 1 {
				t.Errorf("the picker was asked %d times, want once", picker.seen.Load())
			}
			idle(t, p)
		})
	}
}

// lastAccess is the newest record of the access log.
func lastAccess(t *testing.T, p *Process) AccessRecord {
	t.Helper()
	tail, err := p.FollowAccessLog()
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	r, err := tail.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}
