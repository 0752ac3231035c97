package epp

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
)

const scrapers003 = `
profiles:
- name: default
  plugins:
    score:
      enabled:
      - {name: LoadAwareScorer, weight: 1}
    scrape:
      enabled:
      - {name: VLLMMetricScraper, interval: 2ms}
      - {name: KVCacheMetricScraper, interval: 2ms}
      - {name: GenericPrometheusScraper, interval: 2ms}
pluginConfig:
- {name: VLLMMetricScraper, args: {ttl: 100ms}}
- {name: KVCacheMetricScraper, args: {ttl: 100ms, cachePrefixTracking: true}}
- {name: GenericPrometheusScraper, args: {endpoint: /custom-metrics, port: %s, ttl: 100ms, metrics: [custom_queue_depth]}}
`

// The three scrapers of document 003 read the metrics that it lists. A page that is malformed or missing leaves the
// metrics until their ttl, when they are forgotten. A metric that is missing from a good page is forgotten at once.
func TestDocumentScrapers(t *testing.T) {
	t.Parallel()
	page := func(lines string) *string { return &lines }
	typed := func(name, value string) string { return fmt.Sprintf("# TYPE %s gauge\n%s %s\n", name, name, value) }
	whole := typed("vllm_queue_length", "3") + typed("vllm_active_requests", "5") +
		typed("vllm_gpu_utilization", "0.45") +
		typed("vllm_tokens_per_second", "120") + typed("vllm_request_latency_p99", "0.25") +
		typed("vllm_kv_cache_usage_percent", "72") +
		typed("vllm_kv_cache_hit_rate", "0.8") + typed("vllm_kv_cache_prefix_hashes", "40")
	var main, custom atomic.Pointer[string]
	main.Store(page(whole))
	custom.Store(page("custom_queue_depth 7\n"))
	serve := func(at string, p *atomic.Pointer[string]) *url.URL {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if text := p.Load(); text != nil && r.URL.Path == at {
				fmt.Fprint(w, *text)
				return
			}
			http.Error(w, "gone", http.StatusServiceUnavailable)
		}))
		t.Cleanup(s.Close)
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	m, c := serve("/metrics", &main), serve("/custom-metrics", &custom)
	k := picking(t, fmt.Sprintf(scrapers003, c.Port()), 0)
	k.SetEndpoints([]*picker.Endpoint{picker.NewEndpoint("default", "pod", m.Hostname(), m.Port(), nil)})
	type seen struct {
		picker.Metrics
		Scraped bool
	}
	reaches := func(what string, want seen) {
		t.Helper()
		var got seen
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			k.With(func(m *core.Machine, _ machine.Time) {
				st := m.Picker().Pool().View().States[0]
				got = seen{st.Metrics, st.Scraped}
			})
			if cmp.Equal(got, want) {
				return
			}
		}
		t.Fatalf("%s: (-want +got)\n%s", what, cmp.Diff(want, got))
	}
	all := func() seen {
		return seen{picker.Metrics{Waiting: 3, Running: 5, KVUsage: .72,
			Custom: map[string]float64{"gpu_utilization": .45, "tokens_per_second": 120,
				"request_latency_p99": .25, "kv_cache_hit_rate": .8, "kv_cache_prefix_hashes": 40,
				"custom_queue_depth": 7}}, true}
	}
	reaches("all figures", all())

	main.Store(page(whole + "vllm_queue_length{ 9\n"))
	without := seen{picker.Metrics{Custom: map[string]float64{"custom_queue_depth": 7}}, true}
	reaches("a malformed page until its ttl", without)
	main.Store(page(whole))
	reaches("all again", all())

	main.Store(page(whole[len(typed("vllm_queue_length", "3")):]))
	custom.Store(page("other 1\n"))
	missing := all()
	delete(missing.Custom, "custom_queue_depth")
	reaches("the count stays, the custom figure goes", missing)

	main.Store(nil)
	custom.Store(nil)
	reaches("nothing is known", seen{picker.Metrics{Custom: map[string]float64{}}, false})
}
