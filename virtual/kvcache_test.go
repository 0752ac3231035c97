package virtual

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

const cacheAware = `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: default
    model: llama-3.1-8b
    replicas: 4
    modelServer:
      batching: continuous
      prefill: 5ms
      interTokenLatency: 1ms
      outputTokens: 20
      numGPUBlocks: %d
      kvEvents: {format: msgpack, interval: %s, delay: %s}
    epp:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins:
        - {type: token-producer, parameters: {modelName: llama-3.1-8b, vllm: {url: "http://model-server:8000"}}}
        - {type: endpoint-notification-source}
        - {type: precise-prefix-cache-producer, parameters: {speculativeIndexing: %v}}
        - {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
        - {type: queue-scorer}
        dataLayer: {sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}]}
        schedulingProfiles:
        - name: default
          plugins:
          - {pluginRef: prefix-cache-scorer, weight: 2}
          - {pluginRef: queue-scorer, weight: 1}
workload:
  requests: 400
  concurrency: 8
  maxTokens: 20
  prompt:
    characters: 64
    shared: {groups: 12, characters: 1200}
`

func cacheWorld(t *testing.T, blocks int, interval, delay string, speculative bool) (*world, func() []record.Event) {
	t.Helper()
	s, err := scenario.Parse("kv.yaml", []byte(fmt.Sprintf(cacheAware, blocks, interval, delay, speculative)))
	if err != nil {
		t.Fatal(err)
	}
	var events []record.Event
	w, err := newWorld(s, record.Func(func(e record.Event) { events = append(events, e) }), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return w, func() []record.Event {
		if err := w.run(nil); err != nil {
			t.Fatal(err)
		}
		return events
	}
}

// found is how many requests found blocks, and how many ended.
func found(events []record.Event) (hits, ended int) {
	for _, e := range events {
		if e.Hop == record.Client && e.Step == record.Finished {
			ended++
		}
		if e.Step == record.PrefillStarted &&
			!slices.ContainsFunc(e.Details,
				func(d record.Detail) bool { return d.Key == "cached_tokens" && fmt.Sprint(d.Value) == "0" }) {
			hits++
		}
	}
	return hits, ended
}

// In virtual time, too, the index is in the end the union of what the engines
// hold, under evictions and whatever the lag; nothing stays behind.
func TestIndexIsTheUnionAfterARun(t *testing.T) {
	for _, c := range []struct {
		blocks          int
		interval, delay string
		speculative     bool
	}{{4000, "100us", "0s", false}, {300, "1ms", "0s", false}, {250, "100ms", "50ms", false},
		{250, "100ms", "50ms", true}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			w, run := cacheWorld(t, c.blocks, c.interval, c.delay, c.speculative)
			events := run()
			hits, ended := found(events)
			if ended != w.load.Requests || hits < ended/3 {
				t.Errorf("%d requests ended, %d found blocks", ended, hits)
			}
			checks := w.pools[0].kv.check()
			if len(checks) != 1 || checks[0].Missing+checks[0].Extra > 0 || checks[0].Blocks == 0 ||
				checks[0].Pods == 0 {
				t.Errorf("the index is not the union of the engines' blocks: %+v", checks)
			}
			if most := (w.pools[0].kv.interval + w.pools[0].kv.delay).Seconds(); checks[0].Events == 0 ||
				checks[0].Max > most {
				t.Errorf("%d events took at most %v s, expected at most %v", checks[0].Events, checks[0].Max, most)
			}
			for _, sv := range w.pools[0].servers {
				if len(sv.kv.sent)+len(sv.kv.pending.events)+sv.core.Busy() > 0 {
					t.Errorf("%s: left behind: %+v", sv.Name, sv.kv)
				}
			}

		})
	}
}

// The same scenario gives the same run, and a longer lag worse decisions.
func TestLagCostsHits(t *testing.T) {
	_, run := cacheWorld(t, 4000, "100us", "0s", false)
	_, again := cacheWorld(t, 4000, "100us", "0s", false)
	fresh := run()
	if diff := cmp.Diff(fresh, again()); diff != "" {
		t.Fatalf("two runs of one scenario differ:\n%.2000s", diff)
	}
	_, late := cacheWorld(t, 4000, "1s", "20s", false)
	a, _ := found(fresh)
	b, _ := found(late())
	if a <= b {
		t.Errorf("%d requests found blocks when events came at once, %d when they came after 20 s", a, b)
	}
}

// The KV-Cache Manager answers in virtual time, too: prompts find their blocks
// by its scores, and without it only by chance.
func TestManagerAnswers(t *testing.T) {
	hits := func(manager bool) int {
		s, err := scenario.Load("../examples/kv-manager.yaml")
		if err != nil {
			t.Fatal(err)
		}
		s.Pools[0].KVManager = manager
		var events []record.Event
		if err := Run(s, record.Func(func(e record.Event) { events = append(events, e) }), nil); err != nil {
			t.Fatal(err)
		}
		n, ended := found(events)
		if ended != s.Workload.Requests {
			t.Fatalf("%d requests ended", ended)
		}
		return n
	}
	with, without := hits(true), hits(false)
	if with < 40 || with <= without {
		t.Errorf("%d requests found blocks with the manager, %d without", with, without)
	}
}
