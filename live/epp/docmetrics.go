package epp

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/metric"
	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// documentMetrics are a picker's metrics under the names of document 002 (scheduler_*) and document 003 (llmd_epp_*).
// Document 004's names (inference_objective_*, inference_pool_*) are the older names of the real EPP's own metrics.
//
// Metrics with a label per pod are computed from the last decision when a page is read: a decision over a thousand
// endpoints must not write a thousand metrics.
type documentMetrics struct {
	mu                           sync.Mutex
	results                      map[string]float64
	profiles                     map[string]*profileMetrics
	candidates, filtered, scored float64
	pods                         map[string]*podMetrics
	sessionHits, sessionMisses   float64
}

// profileMetrics holds the metrics of one scheduling profile.
type profileMetrics struct {
	selected, failed float64
	hits, misses     float64
	pods             []string // of the last run, and their totals
	totals           []float64
	took             time.Duration
}

// podMetrics holds the prefix index's matches of the prompts that a pod was sent.
type podMetrics struct {
	matched, total float64 // blocks
	prefixBytes    float64 // of the last prompt
}

// maxPods bounds the pods that metrics are kept for.
const maxPods = 16384

// documentDecided counts a decision.
func (x *PickMetrics) documentDecided(p *picker.Picker, r *core.Request) {
	d := r.Decision
	x.add(metric.Scheduling, d.Took.Seconds())
	for _, s := range d.Spans {
		switch s.Point {
		case "Filter":
			x.add(metric.FilterTime, s.Took.Seconds(), s.Plugin.Name())
		case "Scorer":
			x.add(metric.ScorerTime, s.Took.Seconds(), s.Plugin.Name())
		}
	}
	x.document.decided(p, r)
}

func (m *documentMetrics) decided(p *picker.Picker, x *core.Request) {
	d := x.Decision
	took := d.Took.Duration()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.results[d.Result()]++
	m.candidates += float64(len(d.Candidates))
	for i := range d.Profiles {
		r := &d.Profiles[i]
		f := m.profiles[r.Name]
		if f == nil {
			f = &profileMetrics{}
			m.profiles[r.Name] = f
		}
		m.filtered += float64(len(d.Candidates) - len(r.Left))
		f.took = took
		f.pods, f.totals = f.pods[:0], f.totals[:0]
		if len(r.Totals) >= len(r.Left) {
			for j, i := range r.Left {
				f.pods, f.totals = append(f.pods, d.View.States[i].Name), append(f.totals, r.Totals[j])
			}
		}
		if !r.Ok() {
			f.failed++
			continue
		}
		f.selected++
		m.scored += float64(len(r.Left))
		m.cached(p, d, r, f, i == d.Primary)
	}
	m.sessionHits += float64(x.Kept)
	m.sessionMisses += float64(x.Moved)
}

// cached counts what the first prefix index knew of the chosen pod.
func (m *documentMetrics) cached(p *picker.Picker, d *picker.Decision, r *picker.ProfileResult, f *profileMetrics,
	primary bool) {
	for _, pl := range p.Plugins() {
		x, ok := pl.(core.PrefixIndex)
		if !ok {
			continue
		}
		s := &d.View.States[r.Picked[0]]
		matched, total, block := x.MatchOf(d, s)
		if matched > 0 {
			f.hits++
		} else {
			f.misses++
		}
		pod := m.pods[s.Name]
		if pod == nil && len(m.pods) < maxPods {
			pod = &podMetrics{}
			m.pods[s.Name] = pod
		}
		if pod != nil && primary {
			pod.matched += float64(matched)
			pod.total += float64(total)
			pod.prefixBytes = float64(matched * block * 4) // a token is estimated as four bytes
		}
		return
	}
}

// Describe sends nothing: which series exist depends on the profiles.
func (m *documentMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect sends the present metrics.
func (m *documentMetrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	send := reading{out, map[string]*prometheus.Desc{}}.send
	for _, result := range picker.Results {
		send(metric.Results, m.results[result], result)
	}
	send(metric.Candidates, m.candidates)
	send(metric.Filtered, m.filtered)
	send(metric.Scored, m.scored)
	send(metric.SessionsKept, m.sessionHits)
	send(metric.SessionsMoved, m.sessionMisses)
	for name, f := range m.profiles {
		send(metric.Profiles, f.selected, name, "selected")
		send(metric.Profiles, f.failed, name, "failed")
		send(metric.CacheHits, f.hits, name)
		send(metric.CacheMisses, f.misses, name)
		send(metric.ProfileSeconds, f.took.Seconds(), name)
		scores := map[string]float64{} // two namespaces may have a pod of one name
		for j, pod := range f.pods {
			scores[pod] = f.totals[j]
		}
		for pod, score := range scores {
			send(metric.PodScore, score, pod, name)
		}
	}
	for name, pod := range m.pods {
		if pod.total > 0 {
			send(metric.HitRate, pod.matched/pod.total, name)
		}
		send(metric.PrefixBytes, pod.prefixBytes, name)
	}
}
