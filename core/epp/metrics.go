package epp

import (
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/metrics"
	"github.com/windtunnel/windtunnel/core/picker"
)

// The picker's own metrics that an autoscaler reads, worked out of the Machine, where there is no
// page of them to read: as live/epp's page has them.

// Metric is one of them, with its value.
type Metric struct {
	Name   string
	Labels []metrics.Label
	Value  float64
}

const (
	metricQueue      = "llm_d_epp_flow_control_queue_size"
	metricSaturation = "llm_d_epp_flow_control_pool_saturation"
	metricRunning    = "llm_d_epp_request_running"
	metricTokens     = "llm_d_epp_inflight_tokens"
	metricRequests   = "llm_d_epp_inflight_requests"
	metricReady      = "llm_d_epp_ready_endpoints"
	metricTTFT       = "llm_d_epp_request_ttft_seconds"
	metricTPOT       = "llm_d_epp_request_streaming_tpot_seconds"
	metricDuration   = "llm_d_epp_request_duration_seconds"
)

// MetricNames are the metrics that Metrics tells.
var MetricNames = append(
	[]string{metricQueue, metricSaturation, metricRunning, metricTokens, metricRequests, metricReady},
	histogramNames()...)

func histogramNames() (out []string) {
	for _, name := range []string{metricTTFT, metricTPOT, metricDuration} {
		out = append(out, name+"_bucket", name+"_sum", name+"_count")
	}
	return out
}

// The buckets of the real picker's histograms, in seconds.
var (
	secondsToHour = []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20,
		30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	secondsToTPOT = []float64{0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4,
		0.5, 0.6, 0.8, 1, 2}
)

const ttftBuckets = 24

// flowLabels are what requests are told apart by.
type flowLabels struct {
	model, target, fairness string
	priority                int
}

func labelsOf(r *picker.Request) flowLabels {
	l := flowLabels{r.Model, r.TargetModel, r.FairnessID, r.Objective.Priority}
	if l.fairness == "" {
		l.fairness = picker.DefaultFairnessID
	}
	return l
}

func (l flowLabels) list(more ...metrics.Label) []metrics.Label {
	return append(more, metrics.Label{Name: "model_name", Value: l.model},
		metrics.Label{Name: "target_model_name", Value: l.target},
		metrics.Label{Name: "fairness_id", Value: l.fairness},
		metrics.Label{Name: "priority", Value: strconv.Itoa(l.priority)})
}

// latencies are the histograms of ended requests.
type latencies struct {
	order []flowLabels
	of    map[flowLabels]*[3]histogram
}

type histogram struct {
	counts []uint64 // one more than bounds
	sum    float64
	count  uint64
}

func (h *histogram) add(bounds []float64, v float64) {
	if h.counts == nil {
		h.counts = make([]uint64, len(bounds)+1)
	}
	h.counts[searchBound(bounds, v)]++
	h.sum += v
	h.count++
}

func searchBound(bounds []float64, v float64) int {
	for i, b := range bounds {
		if v <= b {
			return i
		}
	}
	return len(bounds)
}

// KeepLatencies has the Machine keep the histograms that Metrics tells of requests that have
// ended.
func (m *Machine) KeepLatencies() { m.latencies = &latencies{of: map[flowLabels]*[3]histogram{}} }

// ended counts a request whose response is over, as the real picker does.
func (x *latencies) ended(now machine.Time, q *Request) {
	r := q.Response
	if x == nil || r == nil || r.Chunks == 0 || !r.Complete() || q.Request.Body == nil {
		return
	}
	l := labelsOf(q.Request)
	h := x.of[l]
	if h == nil {
		h = new([3]histogram)
		x.of[l], x.order = h, append(x.order, l)
	}
	if r.FirstAt > 0 {
		h[0].add(secondsToHour[:ttftBuckets], (r.FirstAt - q.ArrivedAt).Seconds())
	}
	if n := r.Usage.CompletionTokens; r.HasUsage && r.Streaming && n > 1 && r.Chunks > 1 {
		h[1].add(secondsToTPOT, (now-r.FirstAt).Seconds()/float64(n-1))
	}
	h[2].add(secondsToHour, (now - q.ArrivedAt).Seconds())
}

// Metrics tells the metrics that are wanted as they are now; pool is the pool's name.
func (m *Machine) Metrics(now machine.Time, pool string, wants func(name string) bool, tell func(Metric)) {
	own := metrics.Label{Name: "inference_pool", Value: pool}
	if wants(metricQueue) && m.fc != nil || wants(metricRunning) {
		m.flows(own, wants, tell)
	}
	v := m.p.Pool().View()
	if wants(metricReady) {
		tell(Metric{metricReady, []metrics.Label{{Name: "name", Value: pool}}, float64(len(v.States))})
	}
	if wants(metricSaturation) && m.fc != nil {
		all := make([]int32, len(v.States))
		for i := range all {
			all[i] = int32(i)
		}
		tell(Metric{metricSaturation, []metrics.Label{own}, m.p.Detector().Saturation(now, v, all)})
	}
	if wants(metricTokens) || wants(metricRequests) {
		m.loadMetrics(v, wants, tell)
	}
	if m.latencies == nil {
		return
	}
	for _, l := range m.latencies.order {
		h := m.latencies.of[l]
		h[0].tell(metricTTFT, secondsToHour[:ttftBuckets], l, wants, tell)
		h[1].tell(metricTPOT, secondsToTPOT, l, wants, tell)
		h[2].tell(metricDuration, secondsToHour, l, wants, tell)
	}
}

// flows tells the requests that wait and those under way.
func (m *Machine) flows(own metrics.Label, wants func(string) bool, tell func(Metric)) {
	var order []flowLabels
	waits, runs := map[flowLabels]int{}, map[flowLabels]int{}
	for r := m.flying; r != nil; r = r.prev {
		if r.state != queued && (r.state != decided || r.Body == nil || r.Body.SkipResponse) {
			continue
		}
		l := labelsOf(r.Request)
		if waits[l]+runs[l] == 0 {
			order = append(order, l)
		}
		if r.state == queued {
			waits[l]++
		} else {
			runs[l]++
		}
	}
	slices.SortFunc(order, func(a, b flowLabels) int {
		if c := strings.Compare(a.model+"\x00"+a.target+"\x00"+a.fairness,
			b.model+"\x00"+b.target+"\x00"+b.fairness); c != 0 {
			return c
		}
		return a.priority - b.priority
	})
	for _, l := range order {
		if wants(metricQueue) && m.fc != nil {
			tell(Metric{metricQueue, l.list(own), float64(waits[l])})
		}
		if wants(metricRunning) {
			tell(Metric{metricRunning, l.list(), float64(runs[l])})
		}
	}
}

// loadMetrics tells what is in flight at each endpoint.
func (m *Machine) loadMetrics(v *picker.View, wants func(string) bool, tell func(Metric)) {
	for _, pl := range m.p.Plugins() {
		x, ok := pl.(interface {
			EachLoad(slot int, tell func(fairness string, priority int, requests, tokens int64))
		})
		if !ok {
			continue
		}
		for i := range v.States {
			s := &v.States[i]
			x.EachLoad(s.Slot(), func(fairness string, priority int, requests, tokens int64) {
				labels := []metrics.Label{{Name: "endpoint_name", Value: s.Name},
					{Name: "namespace", Value: s.Namespace}, {Name: "producer_name", Value: pl.Name()},
					{Name: "fairness_id", Value: fairness}, {Name: "priority", Value: strconv.Itoa(priority)}}
				if wants(metricTokens) {
					tell(Metric{metricTokens, labels, float64(tokens)})
				}
				if wants(metricRequests) {
					tell(Metric{metricRequests, labels, float64(requests)})
				}
			})
		}
	}
}

func (h *histogram) tell(name string, bounds []float64, l flowLabels, wants func(string) bool, tell func(Metric)) {
	if h.count == 0 {
		return
	}
	if wants(name + "_bucket") {
		n := uint64(0)
		for i, c := range h.counts {
			le := "+Inf"
			if n += c; i < len(bounds) {
				le = strconv.FormatFloat(bounds[i], 'g', -1, 64)
			}
			tell(Metric{name + "_bucket", l.list(metrics.Label{Name: "le", Value: le}), float64(n)})
		}
	}
	if wants(name + "_sum") {
		tell(Metric{name + "_sum", l.list(), h.sum})
	}
	if wants(name + "_count") {
		tell(Metric{name + "_count", l.list(), float64(h.count)})
	}
}
