package epp

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/metric"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// The picker's own metrics for autoscalers in virtual time, which has no page to read. live/epp's page has the same.

// Metric is one series and its value.
type Metric struct {
	Name   string
	Labels []metrics.Label
	Value  float64
}

// readable are the families that Metrics reports: all of the page except those about bytes, which virtual time does not
// write, about time that a real picker spends, and about evictions and scrapes.
var readable = []*metric.Family{metric.QueueSize, metric.Running, metric.Requests, metric.Duration,
	metric.TTFT, metric.TPOT, metric.NTPOT, metric.InputTokens, metric.OutputTokens,
	metric.CachedTokens, metric.Ready, metric.EndpointQueue, metric.MeanKV, metric.MeanWait, metric.MeanRun,
	metric.DevKV, metric.DevWait, metric.DevRun, metric.IndexSize, metric.InflightRequests, metric.InflightTokens,
	metric.Saturation, metric.ProgramService, metric.ProgramWait, metric.Fairness, metric.ReclaimTarget,
	metric.PendingReclaim, metric.Stale}

// MetricNames are the names of the series that Metrics reports.
var MetricNames = func() (out []string) {
	for _, f := range readable {
		out = append(out, f.Series()...)
	}
	return out
}()

// flowLabels are the labels that distinguish requests.
type flowLabels struct {
	model, target, fairness string
	priority                int
}

func labelsOf(r *picker.Request) flowLabels {
	return flowLabels{r.Model, r.TargetModel, cmp.Or(r.FairnessID, picker.DefaultFairnessID), r.Objective.Priority}
}

func (l flowLabels) compare(o flowLabels) int {
	return cmp.Or(strings.Compare(l.model, o.model), strings.Compare(l.target, o.target),
		strings.Compare(l.fairness, o.fairness), l.priority-o.priority)
}

// list returns label values in a family's order. first is the value of a label that is not the request's.
func (l flowLabels) list(f *metric.Family, first, pool string) []metrics.Label {
	out := make([]metrics.Label, len(f.Labels), len(f.Labels)+1)
	for i, name := range f.Labels {
		out[i] = metrics.Label{Name: name, Value: first}
		switch name {
		case "model_name":
			out[i].Value = l.model
		case "target_model_name":
			out[i].Value = l.target
		case "fairness_id":
			out[i].Value = l.fairness
		case "priority":
			out[i].Value = strconv.Itoa(l.priority)
		case "inference_pool":
			out[i].Value = pool
		}
	}
	return out
}

// observed holds the observations of finished requests, by family and labels.
type observed struct {
	wants func(*metric.Family) bool
	order []series
	of    map[series]*values
}

type series struct {
	*metric.Family
	label string
	flow  flowLabels
}

// values are the totals of one series.
type values struct {
	counts []uint64 // of a histogram: one more than bounds
	sum    float64
	count  uint64
}

// KeepMetrics makes the Machine keep the wanted metrics' observations from now on.
func (m *Machine) KeepMetrics(wants func(name string) bool) {
	m.observed = &observed{of: map[series]*values{}, wants: func(f *metric.Family) bool {
		return slices.Contains(readable, f) && slices.ContainsFunc(f.Series(), wants)
	}}
}

// count adds a request's observations.
func (x *observed) count(q *Request, list []Observation) {
	if q.Body == nil {
		return
	}
	for _, o := range list {
		if !x.wants(o.Family) {
			continue
		}
		s := series{o.Family, o.Label, labelsOf(q.Request)}
		v := x.of[s]
		if v == nil {
			v = &values{counts: make([]uint64, len(o.Buckets)+1)}
			x.of[s], x.order = v, append(x.order, s)
		}
		i, _ := slices.BinarySearch(o.Buckets, o.Value)
		v.counts[i]++
		v.sum += o.Value
		v.count++
	}
}

// Metrics reports the metrics that are wanted as they are now; pool is the pool's name.
func (m *Machine) Metrics(now machine.Time, pool string, wants func(name string) bool, report func(Metric)) {
	if wants(metric.QueueSize.Name) && m.fc != nil || wants(metric.Running.Name) {
		m.flows(pool, wants, report)
	}
	m.Pool(now, pool, &PoolReport{Flow: func(id string) string { return id },
		Wants: func(f *metric.Family) bool { return slices.ContainsFunc(f.Series(), wants) },
		Send: func(f *metric.Family, v float64, labels ...string) {
			list := make([]metrics.Label, len(labels), len(labels)+1)
			for i, l := range labels {
				list[i] = metrics.Label{Name: f.Labels[i], Value: l}
			}
			report(Metric{f.Name, list, v})
		}})
	if m.observed == nil {
		return
	}
	for _, s := range m.observed.order {
		m.observed.of[s].report(s, pool, wants, report)
	}
}

// flows reports the number of waiting and of running requests.
func (m *Machine) flows(pool string, wants func(string) bool, report func(Metric)) {
	var order []flowLabels
	waits, runs := map[flowLabels]int{}, map[flowLabels]int{}
	for r := m.unfinished; r != nil; r = r.prev {
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
	machine.SortFunc(order, flowLabels.compare)
	for _, l := range order {
		if wants(metric.QueueSize.Name) && m.fc != nil {
			report(Metric{metric.QueueSize.Name, l.list(metric.QueueSize, "", pool), float64(waits[l])})
		}
		if wants(metric.Running.Name) {
			report(Metric{metric.Running.Name, l.list(metric.Running, "", pool), float64(runs[l])})
		}
	}
}

func (v *values) report(s series, pool string, wants func(string) bool, report func(Metric)) {
	one := func(name string, value float64, more ...metrics.Label) {
		if wants(name) {
			report(Metric{name, append(more, s.flow.list(s.Family, s.label, pool)...), value})
		}
	}
	if s.Kind != metric.Histogram {
		one(s.Name, v.sum)
		return
	}
	names := s.Series()
	if wants(names[0]) {
		n := uint64(0)
		for i, c := range v.counts {
			le := "+Inf"
			if n += c; i < len(s.Buckets) {
				le = strconv.FormatFloat(s.Buckets[i], 'g', -1, 64)
			}
			one(names[0], float64(n), metrics.Label{Name: "le", Value: le})
		}
	}
	one(names[1], v.sum)
	one(names[2], float64(v.count))
}
