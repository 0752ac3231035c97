//go:build unix

package envoy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

// The held request, over every pair of protocols and both ways of routing.
func TestHeld(t *testing.T) {
	t.Parallel()
	const part1, part2 = "part one", "part two"
	for _, routing := range []Routing{OriginalDst, OverrideHost} {
		for _, http2 := range []bool{false, true} {
			server := (&fakeServer{handle: holding(100*time.Millisecond, len(part1))}).start(t)
			picker := (&fakePicker{destination: func() string { return server.addr }, held: true, tail: part2}).start(t)
			c := onePool()
			c.Pools[0].Picker.Addresses = []string{picker.addr}
			c.Pools[0].Routing = routing
			c.Pools[0].HTTP2 = http2
			c.Pools[0].Endpoints = []string{server.addr}
			p := startEnvoy(t, c)
			for _, h2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, http2=%v, client h2=%v", routing, http2, h2),
					func(t *testing.T) {
						code, body := newClient(t, p, h2).post(strings.NewReader(part1))
						want := "first part two over HTTP/1.1"
						if http2 {
							want = "first part two over HTTP/2.0"
						}
						if code != 200 || body != want {
							t.Errorf("got %d %q, want 200 %q", code, body, want)
						}
						idle(t, p)
					})
			}
			for _, served := range picker.servedBy() {
				if routing == OverrideHost && served != server.addr {
					t.Errorf("%s: the picker was told that %q served, want %s", routing, served, server.addr)
				}
			}
		}
	}
}

// With the picker gone a FailOpen pool is served plainly by all its endpoints
// once the health check has noticed, and a client's own idea of where to go
// counts for nothing; with the picker back it is asked again.
func TestFailOpen(t *testing.T) {
	t.Parallel()
	var endpoints []string
	for range 3 {
		endpoints = append(endpoints, (&fakeServer{}).start(t).addr)
	}
	picker := (&fakePicker{destination: func() string { return endpoints[0] }}).start(t)
	c := onePool()
	c.Pools[0].Picker.FailOpen = true
	c.Pools[0].Endpoints = endpoints
	c.Pools[0].Picker.Addresses = []string{picker.addr}
	p := startEnvoy(t, c)
	cl := newClient(t, p, false)
	for range 4 {
		if code, body := cl.post(strings.NewReader("hello")); code != 200 || !strings.HasPrefix(body, endpoints[0]) {
			t.Fatalf("with a picker: %d %q", code, body)
		}
	}

	picker.server.Stop()
	began := time.Now()
	codes, servedBy := map[int]int{}, map[string]bool{}
	eventually.Is(t, "service by all three endpoints", func() bool {
		code, body := cl.post(strings.NewReader("hello"), core.HeaderDestination, endpoints[0])
		codes[code]++
		if code == 200 {
			if len(servedBy) == 0 {
				t.Logf("plain service after %v (%v)", time.Since(began), codes)
			}
			servedBy[strings.Fields(body)[0]] = true
		} else if code != 503 || len(servedBy) > 0 {
			t.Fatalf("without a picker: %d %q after %v", code, body, codes)
		}
		return len(servedBy) == 3
	})

	again := (&fakePicker{addr: picker.addr, destination: func() string { return endpoints[1] }}).start(t)
	eventually.Is(t, "the new picker to be asked", func() bool {
		if code, body := cl.post(strings.NewReader("hello")); code != 200 {
			t.Fatalf("while the picker comes back: %d %q", code, body)
		}
		return again.seen.Load() > 0
	})
	idle(t, p)
}

func TestFailClose(t *testing.T) {
	t.Parallel()
	c := onePool()
	c.Pools[0].Picker.Addresses = []string{"127.0.0.1:1"} // another program may have a picker on its usual port
	p := startEnvoy(t, c)
	for _, h2 := range []bool{false, true} {
		if code, body := newClient(t, p, h2).post(strings.NewReader("hello")); code != http.StatusServiceUnavailable {
			t.Errorf("without a picker: %d %q, want 503", code, body)
		}
	}
	idle(t, p)
}

// slowUpload is a body that is never whole: it stops after n bytes and waits
// for the test, as a client with a slow line does.
type slowUpload struct {
	n    int
	more chan struct{}
	once sync.Once
	read atomic.Int64
}

func (s *slowUpload) Read(b []byte) (int, error) {
	if int(s.read.Load()) >= s.n {
		<-s.more
		return 0, io.EOF
	}
	n := min(len(b), s.n-int(s.read.Load()))
	s.read.Add(int64(n))
	return n, nil
}

func TestTooLargeInTheMiddle(t *testing.T) {
	t.Parallel()
	server := (&fakeServer{}).start(t)
	picker := (&fakePicker{destination: func() string { return server.addr }, maxBody: 1 << 20}).start(t)
	c := onePool()
	c.Pools[0].Picker.Addresses = []string{picker.addr}
	p := startEnvoy(t, c)
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("stalled upload, h2=%v", h2), func(t *testing.T) {
			up := &slowUpload{n: 1<<20 + 100_000, more: make(chan struct{})}
			code, body, err := newClient(t, p, h2).try(up)
			up.Close()
			if code != http.StatusRequestEntityTooLarge {
				t.Errorf("got %d %q %v, want 413", code, body, err)
			}
		})
		t.Run(fmt.Sprintf("fast upload of 64 MiB, h2=%v", h2), func(t *testing.T) {
			cl := newClient(t, p, h2)
			good := 0
			for range 20 {
				code, body, err := cl.try(io.LimitReader(zeros{}, 64<<20))
				if code == http.StatusRequestEntityTooLarge {
					good++
				} else {
					t.Log(code, body, err)
				}
			}
			if good < 20 {
				t.Errorf("only %d of 20 saw the 413", good)
			}
		})
		t.Run(fmt.Sprintf("at the limit, h2=%v", h2), func(t *testing.T) {
			if code, body := newClient(t, p, h2).post(io.LimitReader(zeros{}, 1<<20)); code != 200 {
				t.Errorf("got %d %q", code, body)
			}
		})
	}
	if n := server.requests.Load(); n != 2 {
		t.Errorf("the model server saw %d requests, want the 2 small ones", n)
	}
	idle(t, p)
}

// Close ends the wait: a client closes a body that it will not send.
func (s *slowUpload) Close() error {
	s.once.Do(func() { close(s.more) })
	return nil
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
