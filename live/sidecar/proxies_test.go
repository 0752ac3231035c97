package sidecar

import (
	"net/http"
	"net/url"
	"sync"
	"testing"

	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
)

// Callers that ask for a server at once get one transport: another one's connections would be in nobody's hands.
func TestOneTransportForAll(t *testing.T) {
	t.Parallel()
	p, err := newProxies(LegTLS{}, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	const callers = 8
	for port := range 2000 {
		var begin, asked sync.WaitGroup
		begin.Add(1)
		var got [callers]*http.Transport
		for i := range got {
			asked.Go(func() {
				begin.Wait()
				got[i] = p.to(&disagg.Target{Host: "127.0.0.1", Port: 1 + port}, new(url.URL))
			})
		}
		begin.Done()
		asked.Wait()
		for _, way := range got {
			if way != got[0] {
				t.Fatalf("port %d: two transports", 1+port)
			}
		}
	}
}
