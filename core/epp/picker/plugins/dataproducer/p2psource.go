package dataproducer

import (
	"cmp"
	"hash/fnv"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// p2pSource is p2p-source-producer: it names, in a header for the sidecar, the
// endpoint that holds most of the prompt, when that is not the one that will
// compute it and holds at least minCachedTokenDelta tokens more.
type p2pSource struct {
	named
	Prefix  string `json:"prefixMatchInfoProducerName"`
	Delta   *int   `json:"minCachedTokenDelta" min:"1"`
	Prefill string `json:"prefillProfileName"`

	delta  int32
	source PrefixSource
}

// NewP2PSource makes p2p-source-producer.
var NewP2PSource = picker.Of(p2pSource{delta: 1})

// Complete implements picker.Completer.
func (s *p2pSource) Complete(b *picker.Builder, name string) {
	if s.Delta != nil {
		s.delta = int32(min(*s.Delta, 1<<30))
	}
	s.Prefill = cmp.Or(s.Prefill, PrefillProfile)
	FindPrefix(b, s.Prefix, name, &s.source)
}

// best returns the endpoint to fetch from, -1 for none: of those that hold the most
// but for one block, one by the request's id, the likelier the shorter its
// queue.
func (s *p2pSource) best(c *picker.Cycle, m *PrefixMatch) int32 {
	var most int32
	for _, i := range c.Candidates {
		most = max(most, m.Of(c.State(i)))
	}
	if most == 0 {
		return -1
	}
	weight := func(i int32) float64 {
		if n := m.Of(c.State(i)); n == 0 || n+1 < most {
			return 0
		}
		return 1 / (1 + float64(c.State(i).Waiting))
	}
	total := 0.0
	for _, i := range c.Candidates {
		total += weight(i)
	}
	h := fnv.New32a()
	h.Write([]byte(c.Request.ID))
	target, last := float64(float64(h.Sum32())/(1<<32)*total), int32(-1)
	for _, i := range c.Candidates {
		w := weight(i)
		if w == 0 {
			continue
		}
		if last = i; target < w {
			break
		}
		target -= w
	}
	return last
}

// PreRequest writes the header.
func (s *p2pSource) PreRequest(c *picker.Cycle) {
	m := s.source.Match(c)
	from := s.best(c, m)
	if from < 0 {
		return
	}
	run := c.Decision.PrimaryProfile()
	if p := c.Decision.Profile(s.Prefill); p.Ok() {
		run = p
	}
	if !run.Ok() || run.Picked[0] == from {
		return
	}
	if (m.Of(c.State(from))-m.Of(c.State(run.Picked[0])))*int32(m.BlockTokens) >= s.delta {
		c.Decision.SetHeader(picker.HeaderKVSource, c.State(from).HostPort())
	}
}
