package epp

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/predictor"
)

// coalescer sends questions for predictions of several requests as one, as the real
// picker's client does. The zero value is ready.
type coalescer struct {
	mu      sync.Mutex
	waiting map[string]*joint // by URL
}

// joint are questions that are sent as one.
type joint struct {
	rows  []predictor.Features
	once  sync.Once
	sent  chan struct{} // closed when there is an answer
	list  []predictor.Prediction
	err   error
	timer *time.Timer
}

// predict fetches predictions for a call's rows. The first of several calls within the wait (Need.Together) starts a
// joint one, and a full joint call is sent at once.
func (g *coalescer) predict(ctx context.Context, k *Picking, n *picker.Need) ([]picker.Latency, error) {
	rows, _ := n.Subject.([]predictor.Features)
	g.mu.Lock()
	if g.waiting == nil {
		g.waiting = map[string]*joint{}
	}
	j := g.waiting[n.URL]
	if j != nil && len(j.rows)+len(rows) > predictor.MaxBulk {
		go g.send(k, j, *n)
		j = nil
	}
	if j == nil {
		j = &joint{sent: make(chan struct{})}
		g.waiting[n.URL] = j
		first := j
		j.timer = time.AfterFunc(n.Together.Duration(), func() { g.send(k, first, *n) })
	}
	from := len(j.rows)
	j.rows = append(j.rows, rows...)
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, n.Timeout.Duration())
	defer cancel()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-j.sent:
	}
	if j.err != nil {
		return nil, j.err
	}
	out := make([]picker.Latency, len(rows))
	for i := range out {
		out[i] = picker.Latency(j.list[from+i])
	}
	return out, nil
}

// send sends a joint call, once; n is one of its parts.
func (g *coalescer) send(k *Picking, j *joint, n picker.Need) {
	j.once.Do(func() {
		g.mu.Lock()
		j.timer.Stop()
		if g.waiting[n.URL] == j {
			delete(g.waiting, n.URL)
		}
		rows := j.rows // complete: no call joins it from here on
		g.mu.Unlock()
		defer close(j.sent)
		n.Body = func() ([]byte, error) { return json.Marshal(predictor.Bulk{Requests: rows}) }
		var text []byte
		if text, j.err = k.call(k.ctx, &n); j.err == nil {
			j.list, j.err = predictor.ReadPredictions(text, len(rows))
		}
	})
}
