package epp

import (
	"math"
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/epp/metric"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Observation is one request's value for a family of metrics.
type Observation struct {
	*metric.Family
	// Label is the value of the family's first label, before the request's; "" if it has none.
	Label string
	Value float64
}

// Dispatched appends the observations of a request when it is forwarded.
func (q *Request) Dispatched(out []Observation) []Observation {
	if q.Body == nil {
		return out
	}
	return append(out, Observation{metric.Requests, "", 1},
		Observation{metric.RequestBytes, "", float64(q.SentBytes)})
}

// Ended appends the observations of a request when its response ends, as the real picker counts them.
func (q *Request) Ended(out []Observation, now machine.Time) []Observation {
	r := q.Response
	if r == nil || r.Chunks == 0 || !r.Complete() {
		return out
	}
	add := func(f *metric.Family, label string, v float64) { out = append(out, Observation{f, label, v}) }
	seconds := (now - q.ArrivedAt).Seconds()
	add(metric.Duration, "", seconds)
	add(metric.ResponseBytes, "", float64(r.Bytes))
	if r.FirstAt > 0 {
		add(metric.TTFT, strconv.FormatBool(r.Streaming), (r.FirstAt - q.ArrivedAt).Seconds())
	}
	if r.Failed() {
		add(metric.Errors, "ModelServerError", 1)
	}
	if !r.HasUsage {
		return out
	}
	u := &r.Usage
	if u.PromptTokens > 0 {
		add(metric.InputTokens, "", float64(u.PromptTokens))
	}
	if u.HasCached || u.CachedTokens > 0 {
		add(metric.CachedTokens, "", float64(u.CachedTokens))
	}
	if n := u.CompletionTokens; n > 0 {
		add(metric.OutputTokens, "", float64(n))
		add(metric.NTPOT, "", seconds/float64(n))
		if r.Streaming && n > 1 && r.Chunks > 1 {
			add(metric.TPOT, "", (now-r.FirstAt).Seconds()/float64(n-1))
		}
	}
	return out
}

// PrefixProducer is a plug-in that reports how much of a prompt an endpoint held.
type PrefixProducer interface {
	picker.Plugin
	MatchOf(d *picker.Decision, s *picker.State) (matched, total, blockTokens int)
}

// PrefixIndex is a PrefixProducer with an index of its own, whose size is a metric.
type PrefixIndex interface {
	PrefixProducer
	IndexSize() int
}

// PoolReport gets the metrics of a pool. Flow turns a fairness id, which clients choose, into a label.
type PoolReport struct {
	Wants func(*metric.Family) bool
	Flow  func(fairness string) (label string)
	Send  func(f *metric.Family, v float64, labels ...string)
}

func (to *PoolReport) send(f *metric.Family, v func() float64, labels ...string) {
	if to.Wants(f) {
		to.Send(f, v(), labels...)
	}
}

// Pool reports the pool's wanted metrics as they are now; name is the pool's name.
func (m *Machine) Pool(now machine.Time, name string, to *PoolReport) {
	one := to.send
	v := m.p.Pool().View()
	one(metric.Ready, func() float64 { return float64(len(v.States)) }, name)
	for i := range v.States {
		s := &v.States[i]
		one(metric.EndpointQueue, func() float64 { return float64(s.Waiting) }, name, s.Name)
	}
	for _, f := range [...]struct {
		mean, deviation *metric.Family
		of              func(*picker.State) float64
	}{{metric.MeanKV, metric.DevKV, func(s *picker.State) float64 { return s.KVUsage }},
		{metric.MeanWait, metric.DevWait, func(s *picker.State) float64 { return float64(s.Waiting) }},
		{metric.MeanRun, metric.DevRun, func(s *picker.State) float64 { return float64(s.Running) }}} {
		one(f.mean, func() float64 { mean, _ := spread(v.States, f.of); return mean }, name)
		one(f.deviation, func() float64 { _, deviation := spread(v.States, f.of); return deviation }, name)
	}
	for _, pl := range m.p.Plugins() {
		if x, ok := pl.(PrefixIndex); ok {
			one(metric.IndexSize, func() float64 { return float64(x.IndexSize()) }, pl.Name(), pl.Type())
		}
		if x, ok := pl.(loads); ok && (to.Wants(metric.InflightRequests) || to.Wants(metric.InflightTokens)) {
			for i := range v.States {
				inflight(pl, x, &v.States[i], to)
			}
		}
	}
	if m.fc == nil {
		return
	}
	one(metric.Saturation, func() float64 {
		all := make([]int32, len(v.States))
		for i := range all {
			all[i] = int32(i)
		}
		return m.p.Detector().Saturation(now, v, all)
	}, name)
	m.programs(now, name, to)
	if u, ok := m.p.Detector().(interface {
		StaleEndpoints(loads []flowcontrol.Load, now machine.Time) int
	}); ok {
		one(metric.Stale, func() float64 {
			loads := make([]flowcontrol.Load, 0, len(v.States))
			for i := range v.States {
				s := &v.States[i]
				loads = append(loads, flowcontrol.Load{Scraped: s.Scraped, UpdatedAt: s.UpdatedAt,
					KVUsage: machine.Float(s.KVUsage)})
			}
			return float64(u.StaleEndpoints(loads, now))
		}, m.p.Detector().Name())
	}
}

// programs reports flow control's metrics of programs and of evictions.
func (m *Machine) programs(now machine.Time, name string, to *PoolReport) {
	if !slices.ContainsFunc([]*metric.Family{metric.ProgramService, metric.ProgramWait, metric.Fairness,
		metric.ReclaimTarget, metric.PendingReclaim}, to.Wants) {
		return
	}
	s := m.fc.Snapshot(now)
	type program struct{ service, wait float64 }
	var ids []string
	programs, weighed := map[string]program{}, false
	for i := range s.Programs {
		q := &s.Programs[i]
		weighed = weighed || q.Weighed
		if q.Dispatched == 0 { // it has waited at most
			continue
		}
		id := to.Flow(q.ID)
		was, known := programs[id]
		if !known {
			ids = append(ids, id)
		}
		programs[id] = program{was.service + q.AttainedService, max(was.wait, q.AverageWaitMs)}
	}
	for _, id := range ids {
		if service := programs[id].service; service > 0 {
			to.Send(metric.ProgramService, service, id)
		}
		to.Send(metric.ProgramWait, programs[id].wait, id)
	}
	if slices.ContainsFunc(m.p.Plugins(),
		func(pl picker.Plugin) bool { return pl.Type() == flowcontrol.ProgramAware }) {
		index := 0.0 // nothing has been weighed yet
		if weighed {
			index = s.FairnessIndex
		}
		to.Send(metric.Fairness, index)
	}
	if m.evicted {
		to.Send(metric.ReclaimTarget, s.ReclaimTarget, name)
		to.Send(metric.PendingReclaim, s.PendingReclaim, name)
	}
}

// loads is a plug-in that counts requests in flight.
type loads interface {
	EachLoad(slot int, report func(fairness string, priority int, requests, tokens int64))
}

// inflight reports the requests in flight at an endpoint. Several fairness ids may share a label.
func inflight(pl picker.Plugin, x loads, s *picker.State, to *PoolReport) {
	type load struct {
		labels           [2]string
		requests, tokens float64
	}
	var all []load
	x.EachLoad(s.Slot(), func(fairness string, priority int, requests, tokens int64) {
		key := [2]string{to.Flow(fairness), strconv.Itoa(priority)}
		i := slices.IndexFunc(all, func(l load) bool { return l.labels == key })
		if i < 0 {
			i, all = len(all), append(all, load{labels: key})
		}
		all[i].requests, all[i].tokens = all[i].requests+float64(requests), all[i].tokens+float64(tokens)
	})
	for _, l := range all {
		labels := []string{s.Name, s.Namespace, pl.Name(), l.labels[0], l.labels[1]}
		to.send(metric.InflightTokens, func() float64 { return l.tokens }, labels...)
		to.send(metric.InflightRequests, func() float64 { return l.requests }, labels...)
	}
}

// spread returns mean and deviation of a value over endpoints, rounded to two decimals as in the real picker.
func spread(states []picker.State, of func(*picker.State) float64) (mean, deviation float64) {
	n := float64(len(states))
	if n == 0 {
		return 0, 0
	}
	for i := range states {
		mean += of(&states[i])
	}
	mean /= n
	for i := range states {
		x := of(&states[i])
		deviation += (x - mean) * (x - mean)
	}
	if n > 1 {
		deviation = math.Sqrt(deviation / (n - 1))
	}
	round := func(x float64) float64 { return math.Round(x*100) / 100 }
	return round(mean), round(deviation)
}
