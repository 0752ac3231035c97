package epp

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Prober asks model servers for /health and remembers which are ready, so that
// the picker leaves out the ones that are not. A server is ready from the
// beginning; it is unready after three failures in a row, as for a readiness
// probe of Kubernetes, and ready again after one success.
type Prober struct {
	endpoints []string
	ready     []atomic.Bool
	changed   func()
	client    *http.Client
	stop      context.CancelFunc
	wg        sync.WaitGroup
}

const (
	failureThreshold = 3
	probeTimeout     = 5 * time.Second
)

// StartProber probes the endpoints every interval until Stop. changed is
// called after any of them changed; it may be nil.
func StartProber(endpoints []string, interval time.Duration, changed func()) *Prober {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Prober{endpoints: endpoints, ready: make([]atomic.Bool, len(endpoints)), changed: changed, stop: cancel,
		client: &http.Client{Timeout: probeTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 1}}}
	for i := range endpoints {
		p.ready[i].Store(true)
		p.wg.Go(func() { p.watch(ctx, i, interval) })
	}
	return p
}

func (p *Prober) watch(ctx context.Context, i int, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if failures++; p.probe(ctx, p.endpoints[i]) {
			failures = 0
		}
		if now := failures < failureThreshold; ctx.Err() == nil && p.ready[i].Swap(now) != now && p.changed != nil {
			p.changed()
		}
	}
}

func (p *Prober) probe(ctx context.Context, endpoint string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+endpoint+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4096)) // so that the connection is used again
	return resp.StatusCode == http.StatusOK
}

// Ready is the indexes of the endpoints that are ready.
func (p *Prober) Ready() []int {
	var out []int
	for i := range p.ready {
		if p.ready[i].Load() {
			out = append(out, i)
		}
	}
	return out
}

// Stop ends the probing.
func (p *Prober) Stop() {
	p.stop()
	p.wg.Wait()
	p.client.CloseIdleConnections()
}
