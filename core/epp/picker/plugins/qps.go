package plugins

import (
	"encoding/json"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/machine/bounded"
)

// maxRates bounds the endpoints whose requests per second are counted.
const maxRates = 1 << 16

// qpsLoad is qps-load-scorer (document 002, chapter 10): 1 - qps/maxQps, as the endpoint announces both. With the
// parameter maxQps, the qps of an endpoint without announcements is the number of requests that this picker sent there
// in the last second. Without the parameter, load01 counts.
type qpsLoad struct {
	named
	MaxQPS float64 `json:"maxQps" min:"0"`

	sent *bounded.Store[string, *rate] // by endpoint
}

// Complete implements picker.Completer.
func (s *qpsLoad) Complete(*picker.Builder, string) {
	s.sent = bounded.New[string, *rate](bounded.Limits{Entries: maxRates}, nil)
}

// Score prefers endpoints with room for more requests per second.
func (s *qpsLoad) Score(c *picker.Cycle, in []int32, scores []float64) {
	for j, i := range in {
		st := c.State(i)
		if v := st.Announced; s.MaxQPS == 0 || v != nil && v.MaxQPS > 0 {
			scores[j] = 1 - load01(st)
			continue
		}
		scores[j] = 1
		if r, ok := s.sent.Peek(st.ID()); ok {
			scores[j] = max(0, 1-r.perSecond(c.Now)/s.MaxQPS)
		}
	}
}

// Commit counts the request for its endpoint.
func (s *qpsLoad) Commit(now machine.Time, d *picker.Decision) {
	if s.MaxQPS == 0 || len(d.Targets) == 0 {
		return
	}
	id := d.Targets[0].Endpoint.ID()
	r, ok := s.sent.Get(id)
	if !ok {
		r = &rate{}
		s.sent.Put(id, r, 0)
	}
	r.add(now)
}

// rate counts what happened in the last second, in tenths of it.
type rate struct {
	tenths [10]int
	last   int64 // the tenth that was counted in last, from time 0
}

const tenth = machine.Second / 10

func (r *rate) add(now machine.Time) {
	r.forget(now)
	r.tenths[r.last%10]++
}

func (r *rate) perSecond(now machine.Time) (n float64) {
	r.forget(now)
	for _, k := range r.tenths {
		n += float64(k)
	}
	return n
}

// forget empties the tenths that have become older than a second.
func (r *rate) forget(now machine.Time) {
	at := max(r.last, int64(now/tenth))
	for t := max(r.last+1, at-9); t <= at; t++ {
		r.tenths[t%10] = 0
	}
	r.last = at
}

// savedRate is an endpoint's.
type savedRate struct {
	Endpoint string  `json:"endpoint"`
	Tenths   [10]int `json:"tenths"`
	Last     int64   `json:"last"`
}

// SaveState copies what was sent in the last second.
func (s *qpsLoad) SaveState() any {
	out := make([]savedRate, 0, s.sent.Len())
	for id, r := range s.sent.All() {
		out = append(out, savedRate{id, r.tenths, r.last})
	}
	return out
}

// LoadState implements picker.StateKeeper.
func (s *qpsLoad) LoadState(text []byte) error {
	var saved []savedRate
	if err := json.Unmarshal(text, &saved); err != nil {
		return err
	}
	for _, x := range saved {
		s.sent.Put(x.Endpoint, &rate{x.Tenths, x.Last}, 0)
	}
	return nil
}
