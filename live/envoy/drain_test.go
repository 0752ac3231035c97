//go:build unix

package envoy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// Draining takes no new clients, waits for the request in flight, and says how
// many are left when it must not wait any longer.
func TestDrain(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	server := (&fakeServer{handle: func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		close(begun)
		<-release
		io.WriteString(w, "served")
	}}).start(t)
	picker := (&fakePicker{destination: func() string { return server.addr }}).start(t)
	c := onePool()
	c.Pools[0].Picker.Addresses = []string{picker.addr}
	p := startEnvoy(t, c)
	answered := make(chan string, 1)
	cl := newClient(t, p, false)
	go func() {
		_, body, err := cl.try(strings.NewReader("x"))
		if err != nil {
			body = err.Error()
		}
		answered <- body
	}()
	<-begun

	ctx, giveUp := context.WithCancel(t.Context())
	drained := make(chan error, 1)
	go func() { drained <- p.Drain(ctx) }()
	eventually.Is(t, "new connections to be refused", func() bool {
		conn, err := net.Dial("tcp", p.Addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	giveUp()
	if err := <-drained; !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "in flight at the gateway: 1") {
		t.Errorf("Drain with a request in flight = %v", err)
	}
	close(release)
	if err := p.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if body := <-answered; body != "served" {
		t.Errorf("the request in flight got %q", body)
	}
}
