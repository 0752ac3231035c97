package epp

import (
	"cmp"
	"math"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/metric"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
)

// PickMetrics are the metrics of a picker (core/epp/metric): under the real EPP's names and under the older ones that
// it still serves beside them, and under the documents'.
type PickMetrics struct {
	exposed
	pool     string
	document *documentMetrics

	labels labelSet
	spans  interned[[3]string] // extension point, type and name of a plug-in
	chosen interned[[4]string] // target model, and an endpoint's name, namespace and port
}

// NewPickMetrics registers the metrics; the pool's own are read from k when
// they are asked for (Observe).
func NewPickMetrics(reg prometheus.Registerer, pool string) *PickMetrics {
	m := &PickMetrics{pool: pool, document: &documentMetrics{results: map[string]float64{},
		profiles: map[string]*profileMetrics{}, pods: map[string]*podMetrics{}}}
	m.exposed = expose(reg, slices.DeleteFunc(slices.Clone(metric.Kept), func(f *metric.Family) bool {
		return slices.Contains([]*metric.Family{metric.Streams, metric.Processing, metric.StreamTime,
			metric.StreamsEnded, metric.Info}, f) // the server's
	})...)
	reg.MustRegister(m.document)
	m.add(metric.ExtractErrors, 0, "metrics-data-source", "core-metrics-extractor")
	return m
}

// span counts a time of a plug-in. There are as many series as the
// configuration has plug-ins.
func (m *PickMetrics) span(point, kind, name string, took time.Duration) {
	m.addTo(metric.Plugins, m.spans.find([...]string{point, kind, name}, math.MaxInt, ofSpan), took.Seconds())
}

// maxChosen bounds the pairs of target model and endpoint whose labels are kept.
const maxChosen = 1024

func ofChosen(key [4]string) ([4]string, *labels) {
	return key, newLabels(append([]string{"success"}, key[:]...))
}

func ofSpan(key [3]string) ([3]string, *labels) { return key, newLabels(key[:]) }

// observe counts what a request with these labels leaves behind.
func (m *PickMetrics) observe(l *labels, list []core.Observation) {
	for i := range list {
		switch o := &list[i]; {
		case o.Label == "":
			m.addTo(o.Family, l, o.Value)
		case o.Family == metric.TTFT:
			m.addTo(o.Family, l.streamed[o.Label], o.Value)
		default:
			m.add(o.Family, o.Value, append([]string{o.Label}, l.list...)...)
		}
	}
}

func (m *PickMetrics) refused(r *picker.Request, e *apierror.Error) {
	m.add(metric.Errors, 1, append([]string{e.Code()}, m.labels.request(r).list...)...)
}

// rewritten counts a request whose model an InferenceModelRewrite chose, when it arrives: also one that waits, or is
// refused.
func (m *PickMetrics) rewritten(r *picker.Request) {
	if r.Rewrite == "" {
		return
	}
	l := m.labels.request(r).list
	m.add(metric.Rewrites, 1, r.Rewrite, l[0], l[1])
}

func (m *PickMetrics) flowValues(r *picker.Request) []string {
	l := m.labels.request(r).list
	return []string{l[2], l[3], m.pool, l[0], l[1]}
}

// queued counts a request that enters flow control, or is rejected there.
func (m *PickMetrics) queued(r *core.Request, at flowcontrol.Outcome) {
	l := m.flowValues(r.Request)
	m.add(metric.QueueSize, 1, l...)
	m.add(metric.QueueBytes, float64(r.SizeBytes), l...)
	outcome := "NotYetFinalized"
	switch at {
	case flowcontrol.RejectedCapacity, flowcontrol.RejectedNoEndpoints, flowcontrol.RejectedOther:
		outcome = at.String()
	}
	m.add(metric.EnqueueTime, 0, l[0], l[1], outcome)
}

// left counts a request that left flow control.
func (m *PickMetrics) left(r *core.Request, e *flowcontrol.Effect) {
	l := m.flowValues(r.Request)
	m.add(metric.QueueSize, -1, l...)
	m.add(metric.QueueBytes, -float64(r.SizeBytes), l...)
	m.add(metric.QueueTime, e.Wait.Seconds(), append([]string{e.Outcome.String()}, l...)...)
	m.add(metric.Dispatched, 1, e.Outcome.String(), l[1], m.pool)
}

// parsed observes a parser's work; "" is no parser.
func (m *PickMetrics) parsed(parser, point string, took time.Duration, times int) {
	if parser == "" {
		return
	}
	for range times {
		m.span(point, parser, parser, took/time.Duration(times))
	}
}

// revocation counts in-flight evictions: when they are decided, and how they end.
func (m *PickMetrics) revocation(e *flowcontrol.Effect) {
	switch e.Kind {
	case flowcontrol.Evict:
		m.add(metric.RevocationsIssued, 1, strconv.Itoa(e.ForPriority), m.pool)
	case flowcontrol.RevocationConfirmed:
		m.add(metric.Revocations, 1, e.Kind.Revocation(), m.pool)
		m.add(metric.Confirmation, e.Wait.Seconds(), m.pool)
	case flowcontrol.RevocationTimedOut:
		m.add(metric.Revocations, 1, e.Kind.Revocation(), m.pool)
	}
}

// decided observes a decision.
func (m *PickMetrics) decided(p *picker.Picker, r *core.Request) {
	d := r.Decision
	if d.Request.Body == nil {
		return
	}
	m.documentDecided(p, r)
	for _, s := range d.Request.Spans {
		m.span(s.Point, s.Plugin.Type(), s.Plugin.Name(), s.Took.Duration())
	}
	l := m.labels.request(d.Request).list
	target := l[1]
	// A body that no parser read, and one for images, has no tokens: the real producer of them fails, and later
	// producers do not run.
	opaque := d.Request.Body.Kind == parse.Opaque || d.Request.Body.Kind == parse.Images
	for _, s := range d.Spans {
		if _, tokens := s.Plugin.(picker.AnswerReader); s.Point == "DataProducer" && opaque && !tokens {
			continue
		}
		m.span(s.Point, s.Plugin.Type(), s.Plugin.Name(), s.Took.Duration())
	}
	if d.Handled {
		m.add(metric.Decisions, d.Took.Seconds())
	}
	if res := d.PrimaryProfile(); d.Err != nil && d.Err.Full() {
		m.add(metric.Attempts, 1, "failure", target, "", "", "")
	} else if res.Ok() { // also where the request is refused after that
		e := d.View.States[res.Picked[0]].Endpoint
		port := e.Port
		if len(d.Targets) > 0 {
			e = d.Targets[0].Endpoint
			_, port, _ = net.SplitHostPort(d.Targets[0].HostPort)
		}
		if to := m.chosen.find([...]string{target, e.Pod(), e.Namespace, port}, maxChosen, ofChosen); to != nil {
			m.addTo(metric.Attempts, to, 1)
		} else {
			m.add(metric.Attempts, 1, "success", target, e.Pod(), e.Namespace, port)
		}
	}
	if d.Err != nil {
		return
	}
	m.predicted(p, d, l[:2])
	if by := d.DisaggBy; by != nil {
		c := metric.Disagg
		if by.Type() == "pd-profile-handler" {
			c = metric.PD
		}
		m.add(c, 1, by.Name(), by.Type(), cmp.Or(target, "unknown"), d.Disagg)
	}
	if r := d.PrimaryProfile(); r.Ok() && !opaque {
		for _, pl := range p.Plugins() {
			if x, ok := pl.(core.PrefixIndex); ok {
				matched, total, block := x.MatchOf(d, &d.View.States[r.Picked[0]])
				m.add(metric.HitBytes, float64(matched*block*4), pl.Name(), pl.Type())
				if total > 0 {
					m.add(metric.HitRatio, float64(matched)/float64(total), pl.Name(), pl.Type())
				}
			}
		}
	}
}

func (m *PickMetrics) dispatched(r *core.Request) {
	var room [2]core.Observation
	m.observe(m.labels.request(r.Request), r.Dispatched(room[:0]))
	m.runs(r.Request, 1)
}

// runs counts a request under way, unless its model is unknown.
func (m *PickMetrics) runs(r *picker.Request, by float64) {
	if r.Body != nil && !r.Body.SkipResponse && r.Model != "" {
		m.addTo(metric.Running, m.labels.request(r), by)
	}
}

// hooked counts what a response's hooks took.
func (m *PickMetrics) hooked(r *picker.Response) {
	for _, s := range r.Spans {
		m.span(s.Point, s.Plugin.Type(), s.Plugin.Name(), s.Took.Duration())
	}
	r.Spans = r.Spans[:0]
}

// piece observes a piece of a response; gap is the time since the last one.
func (m *PickMetrics) piece(r *core.Request, gap time.Duration) {
	m.hooked(r.Response)
	if !r.Response.Streaming || gap <= 0 {
		return
	}
	m.addTo(metric.ITL, m.labels.request(r.Request), gap.Seconds())
}

// ended observes the end of a dispatched request; spent is the picker's time for its response. For a response that is
// not a stream the real EPP counts the time from its headers to its end.
func (m *PickMetrics) ended(p *picker.Picker, x *core.Request, now machine.Time, spent time.Duration) {
	d, r := x.Decision, x.Response
	l := m.labels.request(d.Request)
	m.runs(d.Request, -1)
	if r == nil || !r.EndReported() { // the client left; the real EPP still runs its hooks for the end
		p.EachResponseBody(d, func(h picker.Plugin) { m.span("ResponseStreaming", h.Type(), h.Name(), 0) })
	}
	if r == nil {
		return
	}
	m.hooked(r)
	if r.Complete() && !r.Streaming {
		m.add(metric.ResponseProcessing, (now - r.StartedAt).Seconds())
	} else {
		m.add(metric.ResponseProcessing, spent.Seconds())
	}
	m.parsed(r.Parser(), "ResponseParsing", spent, r.Reads)
	if r.Chunks == 0 || !r.Complete() {
		return
	}
	var ttft, tpot time.Duration
	if r.FirstAt > 0 {
		ttft = (r.FirstAt - x.ArrivedAt).Duration()
		if n := r.Usage.CompletionTokens; r.Streaming && n > 1 {
			tpot = (r.LastAt - r.FirstAt).Duration() / time.Duration(n-1)
		}
	}
	m.measured(p, d.Request, ttft, tpot, l)
	var room [12]core.Observation
	m.observe(l, x.Ended(room[:0], now))
}

// ScrapeFailed counts a page that did not come, or that an extractor (its type)
// could not read.
func (m *PickMetrics) ScrapeFailed(source, extractor string) {
	if extractor != "" {
		m.add(metric.ExtractErrors, 1, source, extractor)
	}
	m.add(metric.PollErrors, 1, source)
}

// poolCollector computes the pool's own metrics at a scrape.
type poolCollector struct {
	k    *Picking
	pool string
	desc map[string]*prometheus.Desc
	// flows are the fairness ids that clients made up.
	flows labelSet
}

// ObservePool registers the metrics of k's pool.
func ObservePool(reg prometheus.Registerer, k *Picking, pool string) error {
	return reg.Register(&poolCollector{k: k, pool: pool, desc: map[string]*prometheus.Desc{}})
}

// Describe sends nothing: which series exist depends on the configuration.
func (c *poolCollector) Describe(chan<- *prometheus.Desc) {}

// Collect reads the pool under its lock, on a goroutine of the metrics
// library's: where a plug-in that is asked panics, the rest of the pool's metrics
// are missing from the page.
func (c *poolCollector) Collect(out chan<- prometheus.Metric) {
	_ = guarded(c.k.o.Log, "the page of metrics", "", func() {
		c.k.With(func(m *core.Machine, now machine.Time) {
			m.Pool(now, c.pool, &core.PoolReport{Wants: func(*metric.Family) bool { return true }, Flow: c.flows.flow,
				Send: reading{out, c.desc}.send})
		})
	})
}
