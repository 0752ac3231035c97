package plugins

import (
	"cmp"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

const typeTopology = "topology-extractor"

// topology is topology-extractor: where an endpoint stands, from its labels.
type topology struct {
	named
	Hostname string `json:"hostname"`
	Rack     string `json:"rack"`
	Zone     string `json:"zone"`
	Region   string `json:"region"`
}

// Complete implements picker.Completer.
func (t *topology) Complete(_ *picker.Builder, _ string) {
	t.Hostname = cmp.Or(t.Hostname, "kubernetes.io/hostname")
	t.Rack = cmp.Or(t.Rack, "topology.kubernetes.io/rack")
	t.Zone = cmp.Or(t.Zone, "topology.kubernetes.io/zone")
	t.Region = cmp.Or(t.Region, "topology.kubernetes.io/region")
}

// The levels at which two endpoints may stand together, the closest first.
var levels = []string{"host", "rack", "zone", "region"}

const apart = 4

// together returns the closest level that two endpoints share.
func (t *topology) together(a, b *picker.State) int {
	for level, label := range [...]string{t.Hostname, t.Rack, t.Zone, t.Region} {
		if v := a.Labels[label]; v != "" && v == b.Labels[label] {
			return level
		}
	}
	return apart
}

func (t *topology) stands(s *picker.State) bool {
	return s.Labels[t.Hostname] != "" || s.Labels[t.Rack] != "" || s.Labels[t.Zone] != "" || s.Labels[t.Region] != ""
}

// peer returns the endpoint that an earlier profile chose, if it is known where it
// stands.
func (t *topology) peer(c *picker.Cycle) (*picker.State, bool) {
	if t == nil || c.Peer() < 0 {
		return nil, false
	}
	s := c.State(c.Peer())
	return s, t.stands(s)
}

// findTopology links to the extractor, which is optional.
func findTopology(b *picker.Builder, producer string, to **topology) {
	b.Late(func() error {
		*to, _ = b.Find(cmp.Or(producer, typeTopology)).(*topology)
		return nil
	})
}

// topologyFilter is topology-affinity-filter: endpoints that stand at least as
// close to the other stage's endpoint as minAffinity, or all if none does.
type topologyFilter struct {
	named
	MinAffinity string `json:"minAffinity" oneof:",host,rack,zone,region"`
	Producer    string `json:"topologyProducerName"`

	level int
	from  *topology
}

// Complete implements picker.Completer.
func (f *topologyFilter) Complete(b *picker.Builder, _ string) {
	f.level = slices.Index(levels, cmp.Or(f.MinAffinity, "host"))
	findTopology(b, f.Producer, &f.from)
}

// Filter keeps endpoints nearby.
func (f *topologyFilter) Filter(c *picker.Cycle, in []int32) []int32 {
	peer, ok := f.from.peer(c)
	if !ok {
		return in
	}
	return keepOr(in, func(i int32) bool { return f.from.together(peer, c.State(i)) <= f.level }, true)
}

// topologyScorer is topology-affinity-scorer: 1 on the host of the other
// stage's endpoint, .2 in its rack, .05 in its zone, .02 in its region.
type topologyScorer struct {
	named
	Producer string `json:"topologyProducerName"`

	from *topology
}

// Complete implements picker.Completer.
func (s *topologyScorer) Complete(b *picker.Builder, _ string) {
	findTopology(b, s.Producer, &s.from)
}

var levelScores = [apart + 1]float64{1, .2, .05, .02, 0}

// Score prefers endpoints nearby.
func (s *topologyScorer) Score(c *picker.Cycle, in []int32, scores []float64) {
	peer, ok := s.from.peer(c)
	if !ok {
		return
	}
	for j, i := range in {
		scores[j] = levelScores[s.from.together(peer, c.State(i))]
	}
}
