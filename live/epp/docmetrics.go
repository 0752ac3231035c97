package epp

import (
	"sort"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/picker"
)

// documentMetrics are a picker's metrics under the names of document 002
// (scheduler_*) and document 003 (llmd_epp_*). This is the one place that maps
// them; those of document 004 (inference_objective_*, inference_pool_*) are the
// older names of the real EPP's own and stand beside them in pickmetrics.go
// and poolmetrics.go.
//
// What has a label per pod is worked out when somebody asks, from the last
// decision: a decision over a thousand endpoints must not write a thousand
// metrics.
type documentMetrics struct {
	duration        prometheus.Summary
	filters, scorer *prometheus.HistogramVec

	mu                           sync.Mutex
	results                      map[string]float64
	profiles                     map[string]*profileMetrics
	candidates, filtered, scored float64
	pods                         map[string]*podMetrics
	sessionHits, sessionMisses   float64
	descRequests, descScore      *prometheus.Desc
	descSeconds                  *prometheus.Desc
	descHits, descMisses         *prometheus.Desc
	descResults                  *prometheus.Desc
	descCandidates, descFiltered *prometheus.Desc
	descScored                   *prometheus.Desc
	descHitRate, descPrefix      *prometheus.Desc
	descAffinity, descNoAffinity *prometheus.Desc
}

// profileMetrics are those of one scheduling profile.
type profileMetrics struct {
	selected, failed float64
	hits, misses     float64
	pods             []string // of the last run, and their totals
	totals           []float64
	took             time.Duration
}

// podMetrics are what the prefix index knew of the prompts that a pod was sent.
type podMetrics struct {
	matched, total float64 // blocks
	prefixBytes    float64 // of the last prompt
}

// maxPods bounds the pods that metrics are kept for.
const maxPods = 16384

func newDocumentMetrics(reg prometheus.Registerer) *documentMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m := &documentMetrics{results: map[string]float64{}, profiles: map[string]*profileMetrics{},
		pods: map[string]*podMetrics{},
		duration: prometheus.NewSummary(
			prometheus.SummaryOpts{Name: "llmd_epp_scheduling_duration_seconds", Help: "Time of a decision.",
				Objectives: map[float64]float64{.5: .05, .9: .01, .99: .001}, MaxAge: 10 * time.Minute}),
		filters: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: "llmd_epp_filter_duration_seconds", Help: "Time of a filter.",
				Buckets: microBuckets}, []string{"filter"}),
		scorer: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: "llmd_epp_scorer_duration_seconds", Help: "Time of a scorer.",
				Buckets: microBuckets}, []string{"scorer"}),

		descRequests: desc("scheduler_requests_total", "Runs of a profile, by what came of them: selected or failed.",
			"profile", "decision"),
		descScore: desc("scheduler_pod_score", "Each pod's total in the profile's last run.", "pod", "profile"),
		descSeconds: desc("scheduler_decision_duration_seconds",
			"Time of the last decision in which the profile ran.", "profile"),
		descHits: desc("scheduler_cache_hits_total",
			"Requests that went to a pod that was known to hold part of the prompt.", "profile"),
		descMisses: desc("scheduler_cache_misses_total", "Requests that went to a pod that was not.", "profile"),
		descResults: desc("llmd_epp_scheduling_decisions_total",
			"Decisions by result: success, no_pods, filtered_out or error.", "result"),
		descCandidates: desc("llmd_epp_candidate_pods_total", "Pods that decisions began with."),
		descFiltered:   desc("llmd_epp_filtered_pods_total", "Pods that filters removed."),
		descScored:     desc("llmd_epp_scored_pods_total", "Pods that were scored."),
		descHitRate: desc("llmd_epp_cache_hit_rate", "Share of its prompts' blocks that the pod was known to hold.",
			"pod"),
		descPrefix: desc("llmd_epp_cache_prefix_length_bytes",
			"How much of its last prompt the pod was known to hold.", "pod"),
		descAffinity: desc("llmd_epp_session_affinity_hits_total",
			"Requests of a session that went where it had been before."),
		descNoAffinity: desc("llmd_epp_session_affinity_misses_total", "Requests of a session that did not."),
	}
	reg.MustRegister(m.duration, m.filters, m.scorer, m)
	return m
}

// decided is told of every pick.
func (m *documentMetrics) decided(p *picker.Picker, x *core.Request) {
	d := x.Decision
	took := d.Took.Duration()
	m.duration.Observe(took.Seconds())
	for _, s := range d.Spans {
		switch s.Point {
		case "Filter":
			m.filters.WithLabelValues(s.Plugin.Name()).Observe(s.Took.Seconds())
		case "Scorer":
			m.scorer.WithLabelValues(s.Plugin.Name()).Observe(s.Took.Seconds())
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.results[resultOf(d)]++
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
		x, ok := pl.(prefixMetrics)
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

func resultOf(d *picker.Decision) string {
	switch {
	case d.Err == nil:
		return "success"
	case len(d.Candidates) == 0:
		return "no_pods"
	case len(d.Profiles) > 0 && !d.Profiles[len(d.Profiles)-1].Ok():
		return "filtered_out"
	}
	return "error"
}

// Describe sends nothing: which series exist depends on the profiles.
func (m *documentMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect tells the metrics of the moment.
func (m *documentMetrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, result := range []string{"success", "no_pods", "filtered_out", "error"} {
		counter(m.descResults, m.results[result], result)
	}
	counter(m.descCandidates, m.candidates)
	counter(m.descFiltered, m.filtered)
	counter(m.descScored, m.scored)
	counter(m.descAffinity, m.sessionHits)
	counter(m.descNoAffinity, m.sessionMisses)
	for name, f := range m.profiles {
		counter(m.descRequests, f.selected, name, "selected")
		counter(m.descRequests, f.failed, name, "failed")
		counter(m.descHits, f.hits, name)
		counter(m.descMisses, f.misses, name)
		gauge(m.descSeconds, f.took.Seconds(), name)
		f.scores(func(pod string, score float64) { gauge(m.descScore, score, pod, name) })
	}
	for name, pod := range m.pods {
		if pod.total > 0 {
			gauge(m.descHitRate, pod.matched/pod.total, name)
		}
		gauge(m.descPrefix, pod.prefixBytes, name)
	}
}

// scores are the totals of the profile's last run, each pod's once.
func (f *profileMetrics) scores(each func(pod string, score float64)) {
	at := map[string]float64{}
	names := make([]string, 0, len(f.pods))
	for j, name := range f.pods {
		if _, twice := at[name]; !twice { // two namespaces may have one name
			names = append(names, name)
		}
		at[name] = f.totals[j]
	}
	sort.Strings(names)
	for _, name := range names {
		each(name, at[name])
	}
}
