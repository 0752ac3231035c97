package epp

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// The metrics of an index that dials its pods: a pod is "namespace/name", removals of blocks that were stored twice
// have their own counter, a block beyond a hole is a hit, and a pod that has left has no series.
func TestKVFiguresOfDiscoveredPods(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	p, err := kvevents.NewPublisher(
		kvevents.PublisherOptions{Bind: "tcp://127.0.0.1:0", Topic: kv.Topic{Pod: "whatever", Model: "m"},
			Interval: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	text := strings.Replace(precise, "{kvEventsConfig:",
		"{tokenProcessorConfig: {blockSizeTokens: 4}, indexerConfig: {kvBlockIndexConfig: {enableMetrics: true}}, "+
			"kvEventsConfig:", 1)
	k := picking(t, text, 0, func(o *PickingOptions) {
		o.KV.Registry = reg
		o.KV.Publisher = func(*picker.Endpoint) (string, string) { return p.Endpoint(), "" }
	})
	k.SetEndpoints([]*picker.Endpoint{picker.NewEndpoint("ns", "w", "127.0.0.1", "8000", nil)})
	waitUntil(t, "a subscriber", func() bool { return p.Stats().Subscribers > 0 })
	stored := func(hash, parent kv.EngineHash, first uint32) kv.Event {
		return kv.Event{Kind: kv.Stored, Hashes: []kv.EngineHash{hash}, Parent: parent,
			Tokens: []uint32{first, first + 1, first + 2, first + 3}, BlockTokens: 4, Medium: kv.MediumGPU,
			Group: kv.NoGroup}
	}
	removed := func(hashes ...kv.EngineHash) kv.Event {
		return kv.Event{Kind: kv.Removed, Hashes: hashes, Medium: kv.MediumGPU, Group: kv.NoGroup}
	}
	// Four blocks; the third is stored twice and removed once, the second is gone.
	for _, e := range []kv.Event{stored(1, 0, 1), stored(2, 1, 5), stored(3, 2, 9), stored(4, 3, 13), stored(3, 2, 9),
		removed(3), removed(2), removed(99)} {
		p.Publish(e)
	}
	tell := func(family string) []string { return seriesOf(reg, "llm_d_router_epp_kv_cache_"+family) }
	const messages = `llm_d_router_epp_kv_cache_events_messages_received_total{pod_identifier="ns/w"} 8`
	waitUntil(t, "the events",
		func() bool { return slices.Equal(tell("events_messages_received_total"), []string{messages}) })
	k.testAsk(t.Context(), header.Of(":method", "POST", ":path", "/v1/completions", "x-request-id", "1"),
		`{"model":"m","prompt":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}`).leave()
	for _, want := range []string{
		`index_admissions_total 5`,
		`index_evictions_total 2`,
		`events_dedup_removed_hashes_forwarded_total 2`,
		`events_dedup_removed_hashes_suppressed_total 1`,
		`index_lookup_requests_total 1`,
		`index_lookup_hits_total 3`,
		`index_max_pod_hit_count_total 3`,
	} {
		name, _, _ := strings.Cut(want, " ")
		if got := tell(name); !slices.Equal(got, []string{"llm_d_router_epp_kv_cache_" + want}) {
			t.Errorf("%q, expected %s", got, want)
		}
	}
	k.SetEndpoints(nil)
	waitUntil(t, "the end of the pod's series", func() bool { return len(tell("events_messages_received_total")) == 0 })
}
