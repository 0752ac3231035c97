package epp

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/flowcontrol"
)

// poolCollector tells the pool's own metrics at the moment of a scrape.
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

func (c *poolCollector) gauge(out chan<- prometheus.Metric, name, help string, v float64, labels []string,
	values ...string) {
	d := c.desc[name]
	if d == nil {
		d = prometheus.NewDesc(name, "[ALPHA] "+help, labels, nil)
		c.desc[name] = d
	}
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, values...)
}

// Collect reads the pool under its lock, on a goroutine of the metrics
// library's: where a plug-in that is asked panics, the rest of the pool's metrics
// are missing from the page.
func (c *poolCollector) Collect(out chan<- prometheus.Metric) {
	_ = guarded(c.k.o.Log, "the page of metrics", "", func() error {
		c.k.With(func(m *core.Machine, now machine.Time) { c.collect(out, m, now) })
		return nil
	})
}

func (c *poolCollector) collect(out chan<- prometheus.Metric, m *core.Machine, now machine.Time) {
	p := m.Picker()
	v := p.Pool().View()
	var kv, queue, running []float64
	all := make([]int32, len(v.States))
	for i := range v.States {
		s := &v.States[i]
		all[i] = int32(i)
		kv, queue, running = append(kv, s.KVUsage), append(queue, float64(s.Waiting)),
			append(running, float64(s.Running))
		c.gauge(out, epps+"per_endpoint_queue_size", "Waiting requests by endpoint.", float64(s.Waiting),
			[]string{"name", "model_server_endpoint"}, c.pool, s.Name)
		c.gauge(out, "inference_pool_per_pod_queue_size", "Waiting requests by endpoint.", float64(s.Waiting),
			[]string{"name", "model_server_pod"}, c.pool, s.Name)
	}
	name := []string{"name"}
	for _, f := range []struct {
		what string
		v    []float64
	}{{"kv_cache_utilization", kv}, {"queue_size", queue}, {"running_requests", running}} {
		mean, deviation := spread(f.v)
		c.gauge(out, epps+"average_"+f.what, "Mean over the pool.", mean, name, c.pool)
		c.gauge(out, "inference_pool_average_"+f.what, "Mean over the pool.", mean, name, c.pool)
		c.gauge(out, epps+"std_dev_"+f.what, "Standard deviation over the pool.", deviation, name, c.pool)
	}
	c.gauge(out, epps+"ready_endpoints", "Endpoints of the pool.", float64(len(v.States)), name, c.pool)
	c.gauge(out, "inference_pool_ready_pods", "Endpoints of the pool.", float64(len(v.States)), name, c.pool)
	for _, pl := range p.Plugins() {
		if x, ok := pl.(prefixMetrics); ok {
			n := float64(x.IndexSize())
			c.gauge(out, epps+"prefix_indexer_size", "Blocks that the prefix index remembers.", n,
				[]string{"plugin_name", "plugin_type"}, pl.Name(), pl.Type())
			c.gauge(out, "inference_extension_prefix_indexer_size", "Blocks that the prefix index remembers.", n, nil)
		}
		if x, ok := pl.(interface {
			EachLoad(slot int, tell func(fairness string, priority int, requests, tokens int64))
		}); ok {
			for i := range v.States {
				s := &v.States[i]
				type load struct{ requests, tokens float64 }
				flows := map[[2]string]load{} // several fairness ids may have one label
				x.EachLoad(s.Slot(), func(fairness string, priority int, requests, tokens int64) {
					key := [2]string{c.flows.flow(fairness), strconv.Itoa(priority)}
					l := flows[key]
					flows[key] = load{l.requests + float64(requests), l.tokens + float64(tokens)}
				})
				labels := []string{"endpoint_name", "namespace", "producer_name", "fairness_id", "priority"}
				for flow, l := range flows {
					values := []string{s.Name, s.Namespace, pl.Name(), flow[0], flow[1]}
					c.gauge(out, epps+"inflight_requests", "Requests in flight by endpoint and flow.", l.requests,
						labels, values...)
					c.gauge(out, epps+"inflight_tokens", "Tokens in flight by endpoint and flow.", l.tokens, labels,
						values...)
				}
			}
		}
	}
	if m.FlowControl() == nil {
		return
	}
	saturation := p.Detector().Saturation(now, v, all)
	c.gauge(out, epps+"flow_control_pool_saturation", "How full the pool is; 1 is full.", saturation,
		[]string{"inference_pool"}, c.pool)
	c.gauge(out, "inference_extension_flow_control_pool_saturation", "How full the pool is; 1 is full.", saturation,
		[]string{"inference_pool"}, c.pool)
	s := m.FlowControl().Snapshot(now)
	type program struct{ service, wait float64 }
	programs, weighed := map[string]program{}, false
	for i := range s.Programs {
		q := &s.Programs[i]
		weighed = weighed || q.Weighed
		if q.Dispatched == 0 { // it has waited, at most
			continue
		}
		id := c.flows.flow(q.ID)
		was := programs[id]
		programs[id] = program{was.service + q.AttainedService, max(was.wait, q.AverageWaitMs)}
	}
	for id, q := range programs {
		if q.service > 0 {
			c.gauge(out, epps+"program_aware_attained_service_tokens", "Service that a program has had lately.",
				q.service, []string{"program_id"}, id)
		}
		c.gauge(out, epps+"program_aware_avg_wait_time_milliseconds",
			"How long a program's requests waited; of several under one label, the longest.", q.wait,
			[]string{"program_id"}, id)
	}
	if slices.ContainsFunc(p.Plugins(), func(pl picker.Plugin) bool { return pl.Type() == flowcontrol.ProgramAware }) {
		index := 0.0 // nothing was weighed yet
		if weighed {
			index = s.FairnessIndex
		}
		c.gauge(out, epps+"program_aware_jains_fairness_index",
			"Jain's index over the programs' waits; 1 is fair, 0 before anything was weighed.", index, nil)
	}
	if x := c.k.o.Metrics; x != nil && x.revoked.Load() {
		c.gauge(out, epps+"flow_control_reclaim_target",
			"By how much the pool was too full when requests were evicted last.", s.ReclaimTarget,
			[]string{"inference_pool"}, c.pool)
		c.gauge(out, epps+"flow_control_pending_reclaim", "What evictions are still expected to free.",
			s.PendingReclaim, []string{"inference_pool"}, c.pool)
	}
	if u, ok := p.Detector().(interface {
		StaleEndpoints(loads []flowcontrol.Load, now machine.Time) int
	}); ok {
		loads := make([]flowcontrol.Load, 0, len(v.States))
		for i := range v.States {
			s := &v.States[i]
			loads = append(loads, flowcontrol.Load{Scraped: s.Scraped, UpdatedAt: s.UpdatedAt, KVUsage: s.KVUsage})
		}
		c.gauge(out, epps+"flow_control_stale_endpoints", "Endpoints whose metrics are too old.",
			float64(u.StaleEndpoints(loads, now)), []string{"detector"}, p.Detector().Name())
	}
}
