package modelserver

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// vllmMetrics are the metrics that vLLM 0.33 registers: what switches them on,
// kind, name, labels, bounds of buckets (1-2-5: 1, 2, 5, 10 … to the model's length)
// and help, from vllm/v1/metrics/{loggers,perf,buckets}.py,
// vllm/v1/spec_decode/metrics.py, vllm/v1/kv_offload/cpu/{common,spec}.py,
// vllm/config/cache.py and {nixl/stats,mooncake/stats,offloading/metrics}.py below
// vllm/distributed/kv_transfer/kv_connector/v1. Not there: vllm:corrupted_requests
// and vllm:watermark_requests (an environment variable and a watermark, which are
// not simulated), what other connectors, the realtime API, the development mode's
// sleep and a tool parser count.
//
//go:embed testdata/vllm-metrics.txt
var vllmMetrics string

// httpMetrics are prometheus-fastapi-instrumentator's and Python's own of a process.
const httpMetrics = `
counter http_requests_total
summary http_request_size_bytes http_response_size_bytes
histogram http_request_duration_highr_seconds http_request_duration_seconds
gauge process_virtual_memory_bytes process_resident_memory_bytes process_start_time_seconds process_open_fds process_max_fds
counter process_cpu_seconds_total
`

// Whoever has a dashboard or an alert for vLLM finds every metric there and no other
// one, as vLLM registers it, those with a switch where that is on; and with each that
// counts when it began to.
func TestEveryMetricOfVLLM(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		on string
		so func(*ServerOptions, *Options)
	}{
		"plain": {"always consumer nixl", func(*ServerOptions, *Options) {}},
		"with the flags": {"always consumer nixl kv-cache-metrics speculation offload lora",
			func(so *ServerOptions, _ *Options) {
				so.SpeculativeTokens, so.KVCacheMetricsSample, so.Engine.NumCPUBlocks = 2, 1, 100
				so.Engine.MaxLoRAs, so.Adapters = 1, []Adapter{{Name: "a"}}
			}},
		"a producer with Mooncake": {"always mooncake", func(so *ServerOptions, o *Options) {
			so.KVRole, o.Transfer.Profile = connector.RoleProducer, connector.Mooncake.Profile
		}},
		"a connector without metrics of its own": {"always consumer nixl",
			func(_ *ServerOptions, o *Options) { o.Transfer.Profile = connector.LMCache.Profile }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			so, o := batched(), Options{Seed: 1}
			c.so(&so, &o)
			o.Servers = []ServerOptions{so}
			s := startWith(t, o)
			s.post("/v1/completions", `{"prompt":"a","max_tokens":1}`)
			parser := expfmt.NewTextParser(model.UTF8Validation)
			page, err := parser.TextToMetricFamilies(strings.NewReader(s.page()))
			if err != nil {
				t.Fatal(err)
			}
			var want, got []string
			for line := range strings.Lines(httpMetrics) {
				fields := strings.Fields(line)
				for _, family := range fields[min(1, len(fields)):] {
					if m := page[family]; m == nil || strings.ToLower(m.GetType().String()) != fields[0] {
						t.Errorf("%s %s is not there", fields[0], family)
					}
				}
			}
			for line := range strings.Lines(vllmMetrics) {
				if on, rest, _ := strings.Cut(strings.TrimSpace(line), " "); slices.Contains(strings.Fields(c.on), on) {
					// what batched() has
					want = append(want, strings.Replace(rest, " 1-2-5 ", " 1,2,5,10,20,50,100,200 ", 1))
				}
			}
			for name, m := range page {
				if counted, created := strings.CutSuffix(name, "_created"); created {
					of := cmp.Or(page[counted+"_total"], page[counted])
					if of.GetType() == dto.MetricType_GAUGE || len(of.Metric) != len(m.Metric) ||
						of.GetHelp() != m.GetHelp() || m.Metric[0].Gauge.GetValue() < 1e9 {
						t.Errorf("%v, of %v", m, of)
					}
				} else if strings.HasPrefix(name, "vllm:") {
					got = append(got, described(m))
					if m.GetType() != dto.MetricType_GAUGE &&
						page[strings.TrimSuffix(name, "_total")+"_created"] == nil {
						t.Errorf("when %s began to count is not told", name)
					}
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if d := diff.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// A family in the form of a line of vllmMetrics.
func described(m *dto.MetricFamily) string {
	var labels, bounds []string
	for _, l := range m.Metric[0].Label {
		labels = append(labels, l.GetName())
	}
	slices.Sort(labels)
	for _, b := range m.Metric[0].GetHistogram().GetBucket() {
		if v := b.GetUpperBound(); !math.IsInf(v, 1) {
			format := byte('g')
			if v >= 1 {
				format = 'f'
			}
			bounds = append(bounds, strconv.FormatFloat(v, format, -1, 64))
		}
	}
	return fmt.Sprintf("%s %s %s %s %s", strings.ToLower(m.GetType().String()), m.GetName(), strings.Join(labels, ","),
		cmp.Or(strings.Join(bounds, ","), "-"), m.GetHelp())
}

// What passes the HTTP interface is counted by route, method and class of status;
// what vLLM does not count is not, and clients cannot make up handlers.
func TestHTTPIsCounted(t *testing.T) {
	t.Parallel()
	s := start(t, fast())
	s.post("/v1/completions", `{"prompt":"a","max_tokens":1}`)
	s.post("/v1/completions", `{"prompt":"a","max_tokens":3,"stream":true}`)
	s.post("/tokenize", `{"prompt":1}`)
	s.post("/made-up", ``)
	s.post("/made-up-too", ``)
	s.page()
	page := s.page()
	for _, want := range []string{
		`http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 2.0`,
		`http_requests_total{handler="/tokenize",method="POST",status="4xx"} 1.0`,
		`http_requests_total{handler="none",method="POST",status="4xx"} 2.0`,
		`http_request_size_bytes_sum{handler="/v1/completions"} 72.0`,
		`http_request_duration_seconds_count{handler="/v1/completions",method="POST"} 2.0`,
		`http_request_duration_highr_seconds_count 5.0`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s in\n%s", want, page[strings.Index(page, "# HELP http_requests"):])
		}
	}
	if strings.Contains(page, "made-up") || strings.Contains(page, `handler="/metrics"`) {
		t.Error(page)
	}
}
