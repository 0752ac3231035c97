package datalayer

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// scraper is a metric scraper of document 003: the page's address, the interval, and the metrics to read. It is source
// and extractor in one.
//
// A metric that is missing from a good page is unknown from then on, except for the counts of requests, which keep
// their last value as with the real EPP. A page that cannot be fetched or read changes nothing until ttl has passed.
// Then the scraper forgets all its metrics.
type scraper struct {
	named
	args   scraperArgs
	wanted []metric
}

type scraperArgs struct {
	Endpoint string          `json:"endpoint"`
	Port     int             `json:"port" min:"0" max:"65535"`
	Interval config.Duration `json:"interval" above:"0s"`
	Timeout  config.Duration `json:"timeout" above:"0s"`
	TTL      config.Duration `json:"ttl" above:"0s"`
	Metrics  []string        `json:"metrics"`
	Track    bool            `json:"cachePrefixTracking"`
}

// metric is one figure of a page: the value of its first series that exists, times scale.
type metric struct {
	series []series
	put    func(m *picker.Metrics, v float64)
	key    string // of Metrics.Custom, in place of put
}

type series struct {
	name  string
	scale float64
}

func first(names ...string) []series {
	var out []series
	for _, n := range names {
		s := series{n, 1}
		if strings.HasSuffix(n, "_percent") {
			s.scale = .01
		}
		out = append(out, s)
	}
	return out
}

func (s *scraper) read(b *picker.Builder, name string, p picker.Params) error {
	s.args = scraperArgs{Endpoint: "/metrics", Interval: config.Duration(5 * machine.Second),
		Timeout: config.Duration(2 * machine.Second), TTL: config.Duration(30 * machine.Second)}
	a := &s.args
	if err := p.Decode(a); err != nil {
		return err
	}
	if !strings.HasPrefix(a.Endpoint, "/") {
		return p.At("endpoint").Expected("the path of the metrics page, which begins with /")
	}
	if a.Timeout > a.Interval {
		b.Warn("plugin %s: the timeout %s is longer than the interval %s", name, a.Timeout.Time(), a.Interval.Time())
	}
	if a.Interval.Time() < machine.Second { // document 003's dos and don'ts
		b.Warn("plugin %s: the interval %s is below 1s; document 003 advises 5s to 10s", name, a.Interval.Time())
	}
	if a.TTL.Time() > 30*machine.Second {
		b.Warn("plugin %s: metrics up to %s old are believed; document 003 advises 30s at most", name, a.TTL.Time())
	}
	for i, name := range a.Metrics {
		if spec, err := metrics.ParseSpec(name); err != nil || spec.Name == "" || len(spec.Labels) > 0 {
			return p.At(fmt.Sprintf("metrics[%d]", i)).Expected("the name of a metric")
		}
		s.wanted = append(s.wanted, metric{series: first(name)[:1], key: name})
		s.wanted[len(s.wanted)-1].series[0].scale = 1 // under its own name the value is the page's
	}
	return nil
}

// NewScraper makes a factory for one of the three kinds.
func NewScraper(kind string) picker.Factory {
	return func(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
		s := &scraper{}
		if err := s.read(b, name, p); err != nil {
			return nil, err
		}
		switch kind {
		case "vllm-metric-scraper":
			s.wanted = append(s.wanted, vllmMetrics...)
		case "kv-cache-metric-scraper":
			s.wanted = append(s.wanted, cacheMetrics...)
			if s.args.Track {
				s.wanted = append(s.wanted, metric{series: first("vllm_kv_cache_prefix_hashes"), key: MetricHashes})
			}
		default:
			if len(s.wanted) == 0 {
				return nil, p.At("metrics").Expected("a list of the metrics to read")
			}
		}
		if s.args.Track && kind != "kv-cache-metric-scraper" {
			return nil, p.At("cachePrefixTracking").Errorf("cachePrefixTracking belongs to KVCacheMetricScraper")
		}
		return s, nil
	}
}

// The document's names come first, then those of vLLM itself.
var (
	vllmMetrics = []metric{
		{series: first("vllm_queue_length", "vllm:num_requests_waiting"),
			put: func(m *picker.Metrics, v float64) { m.Waiting = int64(v) }},
		{series: first("vllm_active_requests", "vllm:num_requests_running"),
			put: func(m *picker.Metrics, v float64) { m.Running = int64(v) }},
		{series: first("vllm_gpu_utilization", "vllm_gpu_utilization_percent"), key: MetricGPU},
		{series: first("vllm_tokens_per_second"), key: MetricTokenRate},
		{series: first("vllm_request_latency_p99"), key: FigureP99},
	}
	cacheMetrics = []metric{
		{series: first("vllm_kv_cache_usage_percent", "vllm:kv_cache_usage_perc"),
			put: func(m *picker.Metrics, v float64) { m.KVUsage = v }},
		{series: first("vllm_kv_cache_hit_rate"), key: MetricHitRate},
	}
)

// Scrape returns how to fetch.
func (s *scraper) Scrape() picker.ScrapeSpec {
	spec := picker.ScrapeSpec{Scheme: "http", Path: s.args.Endpoint, Interval: s.args.Interval.Time(),
		Timeout: s.args.Timeout.Time(), TTL: s.args.TTL.Time()}
	if s.args.Port != 0 {
		spec.Port = strconv.Itoa(s.args.Port)
	}
	return spec
}

// Names under which the scrapers keep metrics that are not fields of
// picker.Metrics (Metrics.Custom).
const (
	MetricGPU       = "gpu_utilization"        // share of the time that the accelerator is busy, 0..1
	MetricTokenRate = "tokens_per_second"      // output tokens per second
	FigureP99       = "request_latency_p99"    // seconds
	MetricHitRate   = "kv_cache_hit_rate"      // share of prompt tokens that were cached, 0..1
	MetricHashes    = "kv_cache_prefix_hashes" // blocks that the engine can find by hash
)

// cacheConfig is the metric by which an engine reports its block size.
const cacheConfig = "vllm:cache_config_info"

// Wants reports whether a family has one of the scraper's metrics.
func (s *scraper) Wants(name string) bool {
	return s.args.Track && name == cacheConfig || slices.ContainsFunc(s.wanted, func(f metric) bool {
		return slices.ContainsFunc(f.series, func(n series) bool { return n.name == name })
	})
}

// Extract takes the metrics from a page.
func (s *scraper) Extract(p metrics.Page, _ map[string]string, into *picker.Metrics) error {
	custom := make(map[string]float64, len(into.Custom)+len(s.wanted))
	maps.Copy(custom, into.Custom)
	for i := range s.wanted {
		f := &s.wanted[i]
		v, ok := f.value(p)
		switch {
		case f.put == nil && ok:
			custom[f.key] = v
		case f.put == nil:
			delete(custom, f.key)
		case ok:
			f.put(into, v)
		}
	}
	into.Custom = custom
	if s.args.Track {
		if m, _, ok := (metrics.Spec{Name: cacheConfig}).Latest(p); ok {
			if n, err := strconv.ParseInt(m.Get("block_size"), 10, 32); err == nil && n > 0 {
				into.CacheBlockSize = int32(n)
			}
		}
	}
	return nil
}

func (f *metric) value(p metrics.Page) (float64, bool) {
	for _, n := range f.series {
		m, _, ok := (metrics.Spec{Name: n.name}).Latest(p)
		if ok && !math.IsNaN(m.Value) && math.Abs(m.Value) < 1<<53 {
			return m.Value * n.scale, true
		}
	}
	return 0, false
}

// Forget takes the scraper's metrics back: they are older than their ttl.
func (s *scraper) Forget(m *picker.Metrics) {
	custom := make(map[string]float64, len(m.Custom))
	maps.Copy(custom, m.Custom)
	for i := range s.wanted {
		if f := &s.wanted[i]; f.put != nil {
			f.put(m, 0)
		} else {
			delete(custom, f.key)
		}
	}
	m.Custom = custom
}
