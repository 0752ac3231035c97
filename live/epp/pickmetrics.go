package epp

import (
	"cmp"
	"math"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/core/apierror"
	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/picker/parse"
)

// PickMetrics are the metrics of a picker, under the real EPP's names
// (llm_d_epp_*) and under the older ones that it still serves beside them
// (inference_objective_*, inference_pool_*, inference_extension_*). A nil
// *PickMetrics keeps none.
type PickMetrics struct {
	pool string

	total, errors, attempts, flowTotal, disagg, pd, rewrites twinCounter
	running, queueSize, queueBytes                           twinGauge
	duration, size, respSize, input, output, cached, ntpot   twinHistogram
	tpot, itl, ttft                                          twinHistogram
	respProcessing, e2e, plugin                              twinHistogram
	hitBytes, hitRatio, queueTime, enqueueTime               twinHistogram
	pollErrors, extractErrors                                twinCounter
	cycle, confirmation                                      twinHistogram
	revocationsIssued, revocations                           twinCounter

	revoked atomic.Bool // any request was evicted so far

	document  *documentMetrics
	objective *objectiveMetrics

	labels labelSet
	spans  interned[[3]string] // extension point, type and name of a plug-in
	chosen interned[[4]string] // target model, and an endpoint's name, namespace and port
}

// span counts a time of a plug-in. There are as many series as the
// configuration has plug-ins.
func (m *PickMetrics) span(point, kind, name string, took time.Duration) {
	m.plugin.addTo(m.spans.find([...]string{point, kind, name}, math.MaxInt, ofSpan), took.Seconds())
}

// maxChosen is how many targets and endpoints keep the labels of their decisions.
const maxChosen = 1024

func ofChosen(key [4]string) ([4]string, *labels) {
	return key, &labels{list: append([]string{"success"}, key[:]...)}
}

func ofSpan(key [3]string) ([3]string, *labels) { return key, &labels{list: key[:]} }

var (
	lifeLabels = []string{"model_name", "target_model_name", "fairness_id", "priority"}
	flowLabels = []string{"fairness_id", "priority", "inference_pool", "model_name", "target_model_name"}

	secondsToHour = []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20,
		30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	ttftBuckets = secondsToHour[:24]
	tpotBuckets = []float64{0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4,
		0.5, 0.6, 0.8, 1, 2}
	itlBuckets   = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2}
	ntpotBuckets = []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10}
	inputBuckets = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32778, 65536, 131072,
		262144, 524288, 1048576}
	outputBuckets = inputBuckets[:12]
	respBuckets   = inputBuckets[:15]
	microBuckets  = []float64{0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1}
	answerBuckets = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5,
		5}
	queueBuckets   = []float64{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	ratioBuckets   = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}
	hitByteBuckets = append([]float64{0}, prometheus.ExponentialBuckets(16, 2, 13)...)
)

const epps = "llm_d_epp_"

// NewPickMetrics registers the metrics; the pool's own are read from k when
// they are asked for (Observe).
func NewPickMetrics(reg prometheus.Registerer, pool string) *PickMetrics {
	f := factory{reg, new(int)}
	ext, obj := "inference_extension_", "inference_objective_"
	m := &PickMetrics{pool: pool, document: newDocumentMetrics(reg), objective: newObjectiveMetrics(f)}
	old := []string{"model_name", "target_model_name"}
	m.total = f.counter("request_total", "Requests sent on.", obj+"request_total", lifeLabels,
		[]string{"model_name", "target_model_name", "priority"})
	m.errors = f.counter("request_error_total", "Requests that failed.", obj+"request_error_total",
		append([]string{"error_code"}, lifeLabels...), append([]string{"error_code"}, old...))
	m.running = f.gauge("request_running", "Requests that are under way.", obj+"running_requests", lifeLabels,
		[]string{"model_name"})
	m.duration = f.histogram("request_duration_seconds", "From the request to the end of its response.",
		obj+"request_duration_seconds", secondsToHour, lifeLabels, old)
	m.size = f.histogram("request_size_bytes", "Length of request bodies.", obj+"request_sizes",
		prometheus.ExponentialBuckets(64, 2, 25), lifeLabels, old)
	m.respSize = f.histogram("response_size_bytes", "Length of response bodies.", obj+"response_sizes", respBuckets,
		lifeLabels, old)
	m.input = f.histogram("request_input_tokens", "Prompt tokens, as the model server counted them.",
		obj+"input_tokens", inputBuckets, lifeLabels, old)
	m.output = f.histogram("request_output_tokens", "Generated tokens, as the model server counted them.",
		obj+"output_tokens", outputBuckets, lifeLabels, old)
	m.cached = f.histogram("request_cached_tokens", "Prompt tokens that the model server had cached.",
		obj+"prompt_cached_tokens", inputBuckets, lifeLabels, old)
	m.ntpot = f.histogram("request_ntpot_seconds", "Duration of a request over its generated tokens.",
		obj+"normalized_time_per_output_token_seconds", ntpotBuckets, lifeLabels, old)
	m.tpot = f.histogram("request_streaming_tpot_seconds", "Time per output token after the first, of streams.", "",
		tpotBuckets, lifeLabels, nil)
	m.itl = f.histogram("request_streaming_itl_seconds", "Time between two pieces of a stream.", "", itlBuckets,
		lifeLabels, nil)
	m.ttft = f.histogram("request_ttft_seconds", "From the request to the first piece of its response.", "",
		ttftBuckets, append([]string{"streaming"}, lifeLabels...), nil)
	m.respProcessing = f.histogram("response_processing_duration_seconds", "Time that the picker spent on a response.",
		"", answerBuckets, nil, nil)
	m.e2e = f.histogram("scheduler_e2e_duration_seconds", "Time of a decision.", ext+"scheduler_e2e_duration_seconds",
		microBuckets, nil, []string{})
	m.plugin = f.histogram("plugin_duration_seconds", "Time of one plug-in in one decision.",
		ext+"plugin_duration_seconds", microBuckets,
		[]string{"extension_point", "plugin_type", "plugin_name"},
		[]string{"extension_point", "plugin_type", "plugin_name"})
	m.attempts = f.counterRenamed("scheduler_attempts_total", "Decisions by outcome and endpoint.",
		ext+"scheduler_attempts_total",
		[]string{"status", "target_model_name", "endpoint_name", "namespace", "port"},
		[]string{"status", "target_model_name", "pod_name", "namespace", "port"})
	m.disagg = f.counter("disagg_decision_total", "Decisions by kind of disaggregation.",
		"llm_d_inference_scheduler_disagg_decision_total",
		[]string{"plugin_name", "plugin_type", "model_name", "decision_type"}, []string{"model_name", "decision_type"})
	m.pd = f.counter("pd_decision_total", "Decisions of pd-profile-handler. Deprecated.",
		"llm_d_inference_scheduler_pd_decision_total",
		[]string{"plugin_name", "plugin_type", "model_name", "decision_type"}, []string{"model_name", "decision_type"})
	m.rewrites = f.counter("model_rewrite_decisions_total", "Requests whose model an InferenceModelRewrite chose.",
		ext+"model_rewrite_decisions_total",
		[]string{"model_rewrite_name", "model_name", "target_model"},
		[]string{"model_rewrite_name", "model_name", "target_model"})
	m.hitBytes = f.histogram("prefix_indexer_hit_bytes", "How much of a prompt its endpoint was known to hold.",
		ext+"prefix_indexer_hit_bytes", hitByteBuckets, []string{"plugin_name", "plugin_type"}, []string{})
	m.hitRatio = f.histogram("prefix_indexer_hit_ratio", "Which share of a prompt its endpoint was known to hold.",
		ext+"prefix_indexer_hit_ratio", ratioBuckets, []string{"plugin_name", "plugin_type"}, []string{})
	m.queueTime = f.histogram("flow_control_request_queue_duration_seconds", "Time in the flow-control queue.",
		ext+"flow_control_request_queue_duration_seconds", queueBuckets,
		append([]string{"outcome"}, flowLabels...), append([]string{"outcome"}, flowLabels...))
	m.enqueueTime = f.histogram("flow_control_request_enqueue_duration_seconds", "Time that entering the queue took.",
		ext+"flow_control_request_enqueue_duration_seconds", microBuckets,
		[]string{"fairness_id", "priority", "outcome"}, []string{"fairness_id", "priority", "outcome"})
	m.queueSize = f.gauge("flow_control_queue_size", "Requests that wait.", ext+"flow_control_queue_size", flowLabels,
		flowLabels)
	m.queueBytes = f.gauge("flow_control_queue_bytes", "Bytes that wait.", ext+"flow_control_queue_bytes", flowLabels,
		flowLabels)
	m.flowTotal = f.counter("flow_control_requests_total", "Requests that left flow control, by outcome.", "",
		[]string{"outcome", "priority", "inference_pool"}, nil)
	m.revocationsIssued = f.counter("flow_control_revocations_issued_total",
		"Requests in flight that were evicted, by the priority for which.", "", []string{"priority", "inference_pool"},
		nil)
	m.revocations = f.counter("flow_control_revocations_total", "Evicted requests by how they ended.", "",
		[]string{"outcome", "inference_pool"}, nil)
	m.confirmation = f.histogram("flow_control_revocation_confirmation_seconds",
		"From an eviction to the end of the request's stream.", "",
		[]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}, []string{"inference_pool"}, nil)
	m.pollErrors = f.counter("datalayer_poll_errors_total", "Scrapes that failed.",
		"llm_d_inference_scheduler_datalayer_poll_errors_total", []string{"source_type"}, []string{"source_type"})
	m.extractErrors = f.counter("datalayer_extract_errors_total", "Scraped pages that could not be read.",
		"llm_d_inference_scheduler_datalayer_extract_errors_total",
		[]string{"source_type", "extractor_type"}, []string{"source_type", "extractor_type"})
	m.extractErrors.add(0, "metrics-data-source", "core-metrics-extractor")
	m.cycle = f.histogram("flow_control_dispatch_cycle_duration_seconds", "Time of one round of flow control.",
		ext+"flow_control_dispatch_cycle_duration_seconds", microBuckets, nil, []string{})
	return m
}

func (m *PickMetrics) refused(r *picker.Request, e *apierror.Error) {
	if m == nil {
		return
	}
	m.errors.inc(append([]string{e.Code()}, m.labels.request(r).list...)...)
}

// rewritten is told of a request whose model an InferenceModelRewrite chose, when
// it arrives: it counts also where the request waits, or is refused.
func (m *PickMetrics) rewritten(r *picker.Request) {
	if m == nil || r.Rewrite == "" {
		return
	}
	l := m.labels.request(r).list
	m.rewrites.inc(r.Rewrite, l[0], l[1])
}

func (m *PickMetrics) flowValues(r *picker.Request) []string {
	l := m.labels.request(r).list
	return []string{l[2], l[3], m.pool, l[0], l[1]}
}

// queued is told of a request that enters flow control, or is rejected there.
func (m *PickMetrics) queued(r *core.Request, at flowcontrol.Outcome) {
	if m == nil {
		return
	}
	l := m.flowValues(r.Request)
	m.queueSize.add(1, l...)
	m.queueBytes.add(float64(r.SizeBytes), l...)
	outcome := "NotYetFinalized"
	switch at {
	case flowcontrol.RejectedCapacity, flowcontrol.RejectedNoEndpoints, flowcontrol.RejectedOther:
		outcome = at.String()
	}
	m.enqueueTime.add(0, l[0], l[1], outcome)
}

// left is told how a request left flow control.
func (m *PickMetrics) left(r *core.Request, e *flowcontrol.Effect) {
	if m == nil {
		return
	}
	l := m.flowValues(r.Request)
	m.queueSize.add(-1, l...)
	m.queueBytes.add(-float64(r.SizeBytes), l...)
	m.queueTime.add(e.Wait.Seconds(), append([]string{e.Outcome.String()}, l...)...)
	m.flowTotal.inc(e.Outcome.String(), l[1], m.pool)
}

// prefixMetrics is a prefix producer that tells what matched.
type prefixMetrics interface {
	picker.Plugin
	MatchOf(d *picker.Decision, s *picker.State) (matched, total, blockTokens int)
	IndexSize() int
}

// parsed is told what a parser did; "" is none.
func (m *PickMetrics) parsed(parser, point string, took time.Duration, times int) {
	if m == nil || parser == "" {
		return
	}
	for range times {
		m.span(point, parser, parser, took/time.Duration(times))
	}
}

// revocation counts in-flight evictions: when they are decided, and how they end.
func (m *PickMetrics) revocation(e *flowcontrol.Effect) {
	if m == nil {
		return
	}
	switch e.Kind {
	case flowcontrol.Evict:
		m.revoked.Store(true)
		m.revocationsIssued.inc(strconv.Itoa(e.ForPriority), m.pool)
	case flowcontrol.RevocationConfirmed:
		m.revocations.inc("confirmed", m.pool)
		m.confirmation.add(e.Wait.Seconds(), m.pool)
	case flowcontrol.RevocationTimedOut:
		m.revocations.inc("timed_out", m.pool)
	}
}

// decided is told of every pick.
func (m *PickMetrics) decided(p *picker.Picker, r *core.Request) {
	d := r.Decision
	if m == nil || d.Request.Body == nil {
		return
	}
	m.document.decided(p, r)
	for _, s := range d.Request.Spans {
		m.span(s.Point, s.Plugin.Type(), s.Plugin.Name(), s.Took.Duration())
	}
	l := m.labels.request(d.Request).list
	target := l[1]
	// Of a body that nobody looked into, and of one that asks for images, there are no tokens: the real
	// producer of them fails, and those behind it are not asked.
	opaque := d.Request.Body.Kind == parse.Opaque || d.Request.Body.Kind == parse.Images
	for _, s := range d.Spans {
		if _, tokens := s.Plugin.(picker.AnswerReader); s.Point == "DataProducer" && opaque && !tokens {
			continue
		}
		m.span(s.Point, s.Plugin.Type(), s.Plugin.Name(), s.Took.Duration())
	}
	if d.Handled {
		m.e2e.add(d.Took.Seconds())
	}
	if res := d.PrimaryProfile(); d.Err != nil && d.Err.Full() {
		m.attempts.inc("failure", target, "", "", "")
	} else if res.Ok() { // also where the request is refused after that
		e := d.View.States[res.Picked[0]].Endpoint
		port := e.Port
		if len(d.Targets) > 0 {
			e = d.Targets[0].Endpoint
			_, port, _ = net.SplitHostPort(d.Targets[0].HostPort)
		}
		if to := m.chosen.find([...]string{target, e.Pod(), e.Namespace, port}, maxChosen, ofChosen); to != nil {
			m.attempts.addTo(to, 1)
		} else {
			m.attempts.inc("success", target, e.Pod(), e.Namespace, port)
		}
	}
	if d.Err != nil {
		return
	}
	m.objective.decided(p, d, l[:2])
	if by := d.DisaggBy; by != nil {
		c := &m.disagg
		if by.Type() == "pd-profile-handler" {
			c = &m.pd
		}
		c.inc(by.Name(), by.Type(), cmp.Or(target, "unknown"), d.Disagg)
	}
	if r := d.PrimaryProfile(); r.Ok() && !opaque {
		for _, pl := range p.Plugins() {
			if x, ok := pl.(prefixMetrics); ok {
				matched, total, block := x.MatchOf(d, &d.View.States[r.Picked[0]])
				m.hitBytes.add(float64(matched*block*4), pl.Name(), pl.Type())
				if total > 0 {
					m.hitRatio.add(float64(matched)/float64(total), pl.Name(), pl.Type())
				}
			}
		}
	}
}

func (m *PickMetrics) dispatched(r *core.Request) {
	if m == nil || r.Body == nil {
		return
	}
	l := m.labels.request(r.Request)
	m.total.addTo(l, 1)
	m.size.addTo(l, float64(r.SentBytes))
	m.runs(r.Request, 1)
}

// runs counts a request that is under way, unless nobody knows its model.
func (m *PickMetrics) runs(r *picker.Request, by float64) {
	if r.Body != nil && !r.Body.SkipResponse && r.Model != "" {
		m.running.addTo(m.labels.request(r), by)
	}
}

// hooked counts what a response's hooks took.
func (m *PickMetrics) hooked(r *picker.Response) {
	for _, s := range r.Spans {
		m.span(s.Point, s.Plugin.Type(), s.Plugin.Name(), s.Took.Duration())
	}
	r.Spans = r.Spans[:0]
}

// piece is told of every piece of a response; gap is the time since the last.
func (m *PickMetrics) piece(r *core.Request, gap time.Duration) {
	if m == nil {
		return
	}
	m.hooked(r.Response)
	if !r.Response.Streaming || gap <= 0 {
		return
	}
	m.itl.addTo(m.labels.request(r.Request), gap.Seconds())
}

// ended is told once per dispatched request; spent is the time that its response
// took of the picker's. Of a response that is no stream the real one counts the
// time from its headers to its end.
func (m *PickMetrics) ended(p *picker.Picker, x *core.Request, now machine.Time, spent time.Duration) {
	if m == nil {
		return
	}
	d, r, began := x.Decision, x.Response, x.ArrivedAt
	l := m.labels.request(d.Request)
	m.runs(d.Request, -1)
	if r == nil || !r.Told() { // the client left: the real one's hooks hear of an end all the same
		p.EachResponseBody(d, func(h picker.Plugin) { m.span("ResponseStreaming", h.Type(), h.Name(), 0) })
	}
	if r == nil {
		return
	}
	m.hooked(r)
	if r.Complete() && !r.Streaming {
		m.respProcessing.add((now - r.StartedAt).Seconds())
	} else {
		m.respProcessing.add(spent.Seconds())
	}
	m.parsed(r.Parser(), "ResponseParsing", spent, r.Reads)
	if r.Chunks == 0 || !r.Complete() {
		return
	}
	seconds := (now - began).Seconds()
	m.duration.addTo(l, seconds)
	m.respSize.addTo(l, float64(r.Bytes))
	var ttft, tpot time.Duration
	if r.FirstAt > 0 {
		ttft = (r.FirstAt - began).Duration()
		if n := r.Usage.CompletionTokens; r.Streaming && n > 1 {
			tpot = (r.LastAt - r.FirstAt).Duration() / time.Duration(n-1)
		}
	}
	m.objective.measured(p, d.Request, ttft, tpot, l)
	if r.FirstAt > 0 {
		streamed := 0
		if r.Streaming {
			streamed = 1
		}
		m.ttft.addTo(l.streamed[streamed], (r.FirstAt - began).Seconds())
	}
	if r.Failed() {
		m.errors.inc(append([]string{"ModelServerError"}, l.list...)...)
	}
	if !r.HasUsage {
		return
	}
	u := r.Usage
	if u.PromptTokens > 0 {
		m.input.addTo(l, float64(u.PromptTokens))
	}
	if u.HasCached || u.CachedTokens > 0 {
		m.cached.addTo(l, float64(u.CachedTokens))
	}
	if u.CompletionTokens > 0 {
		m.output.addTo(l, float64(u.CompletionTokens))
		m.ntpot.addTo(l, seconds/float64(u.CompletionTokens))
		if r.Streaming && u.CompletionTokens > 1 && r.Chunks > 1 {
			m.tpot.addTo(l, (now-r.FirstAt).Seconds()/float64(u.CompletionTokens-1))
		}
	}
}

// ScrapeFailed counts a page that did not come, or that an extractor (its type)
// could not read.
func (m *PickMetrics) ScrapeFailed(source, extractor string) {
	switch {
	case m == nil:
	case extractor != "":
		m.extractErrors.inc(source, extractor)
		m.pollErrors.inc(source)
	default:
		m.pollErrors.inc(source)
	}
}

// mean and deviation of a metric over endpoints, to two digits as the real
// one tells them.
func spread(v []float64) (mean, deviation float64) {
	if len(v) == 0 {
		return 0, 0
	}
	for _, x := range v {
		mean += x
	}
	mean /= float64(len(v))
	if len(v) > 1 {
		for _, x := range v {
			deviation += (x - mean) * (x - mean)
		}
		deviation = math.Sqrt(deviation / float64(len(v)-1))
	}
	round := func(x float64) float64 { return math.Round(x*100) / 100 }
	return round(mean), round(deviation)
}
