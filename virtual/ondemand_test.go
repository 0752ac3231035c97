package virtual

import (
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

// Pages that are made when a decision needs them give the same run as pages that are made at their times: each decision
// has the same metrics.
func TestMetricsWhenLookedAt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		some := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
		var published, producers, scorer, source string
		if rapid.Bool().Draw(t, "KV events") {
			published = fmt.Sprintf("    kvEvents: {format: msgpack, interval: %s, delay: %s}",
				some("every", "10ms", "1ms", "100us"), some("delay", "0s", "1ms", "7ms"))
			producers = `      - {type: token-producer, parameters: {modelName: default, vllm: {url: "http://model-server:8000"}}}
      - {type: endpoint-notification-source}
      - {type: precise-prefix-cache-producer, parameters: {tokenProcessorConfig: {blockSizeTokens: 16}}}
      - {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}`
			scorer = "{pluginRef: prefix-cache-scorer, weight: 2}, "
			source = ", {pluginRef: endpoint-notification-source, extractors: " +
				"[{pluginRef: precise-prefix-cache-producer}]}"
		}
		text := fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
seed: %d
pools:
- name: pool
  replicas: %d
  flow: plain
  modelServer:
    batching: %s
    accelerator: H100
    outputTokens: 1..200
    numGPUBlocks: 900
    %s
%s
  epp:
    config:
      apiVersion: llm-d.ai/v1alpha1
      kind: EndpointPickerConfig
      plugins:
      - {type: queue-scorer}
      - {type: kv-cache-utilization-scorer}
      - {type: running-requests-size-scorer}
      - {type: lora-affinity-scorer}
      - {type: metrics-data-source, parameters: {interval: %s}}
      - {type: core-metrics-extractor}
      - {type: health-data-source}
%s
      schedulingProfiles:
      - {name: default, plugins: [%s{pluginRef: queue-scorer}, {pluginRef: kv-cache-utilization-scorer}, {pluginRef: running-requests-size-scorer}, {pluginRef: lora-affinity-scorer}]}
      dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}%s%s]}
workload: {requests: %d, prompt: {characters: 40..4000}, %s, leaving: {after: 1ms..1s, rate: 10%%}, %s}
hops: {network: '%s', scrape: '%s'}
`, rapid.IntRange(1, 1000).Draw(t, "seed"), rapid.IntRange(2, 9).Draw(t, "replicas"), some("batching", "continuous", "continuous", "static"),
			some("adapters", "loraAdapters: [a, b, c]", "maxNumSeqs: 8"), published,
			some("interval", "50ms", "10ms", "1s", "37ms"),
			producers, scorer, some("sources", "", ", {pluginRef: health-data-source}"), source,
			rapid.IntRange(20, 150).Draw(t, "requests"),
			some("arrivals", "rate: 20", "rate: 200", "rate: 1000", "concurrency: 3", "concurrency: 30"),
			some("prompts", "conversations: {turns: 1..3, thinkTime: 20ms}", "maxTokens: 50"),
			some("network", "0", "1ms", "lognormal(330us, 100us)"),
			some("scrape", "0", "2ms", "8ms", "lognormal(350us, 65us)", "1ms..9ms"))
		play := func(eachPage bool) (events []record.Event) {
			s, err := scenario.Parse("any.yaml", []byte(text))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			w, err := newWorld(s, record.Func(func(e record.Event) { events = append(events, e) }),
				Options{eachPage: eachPage})
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if lazy := w.pools[0].servers[0].readings != nil; lazy == eachPage {
				t.Fatalf("pages are made when somebody looks: %v\n%s", lazy, text)
			}
			if err := w.run(nil); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			return events
		}
		looked, each := play(false), play(true)
		for i := range max(len(looked), len(each)) {
			if i >= min(len(looked), len(each)) || !reflect.DeepEqual(looked[i], each[i]) {
				t.Fatalf("event %d of %d and %d differs:\n%+v\n%+v\n%s", i, len(looked), len(each), looked[i], each[i],
					text)
			}
		}
	})
}

// Where only objectives look at metrics, they are read: requests of a priority
// below 0 are refused once the servers' queues are long.
func TestObjectivesReadMetrics(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("any.yaml", []byte(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
- name: pool
  flow: plain
  modelServer: {batching: continuous, accelerator: H100, outputTokens: 200, maxNumSeqs: 2}
  epp:
    objectives: [{name: sheddable, priority: -10}]
    config:
      apiVersion: llm-d.ai/v1alpha1
      kind: EndpointPickerConfig
      plugins: [{type: round-robin-picker}, {type: utilization-detector}]
      schedulingProfiles: [{name: default, plugins: [{pluginRef: round-robin-picker}]}]
workload:
  requests: 200
  rate: 50
  headers: [{name: x-llm-d-inference-objective, value: sheddable}]
`))
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]int{}
	err = Run(s, record.Func(func(e record.Event) {
		if e.Step == record.Finished {
			outcomes[fmt.Sprint(e.Details.Get("outcome"))]++
		}
	}), nil)
	if err != nil || outcomes["overloaded"] < 100 || outcomes["completed"] < 5 {
		t.Errorf("%v, %v; expected most requests to be overloaded, and the first to be completed", outcomes, err)
	}
}

// Nobody asks endpoints that always answer whether they are there: a pool with the default configuration takes as many
// events for its requests however long it waits between them, and its record is the one with every probe.
func TestIdleCostsNothing(t *testing.T) {
	t.Parallel()
	play := func(rate string, eachPage bool) (events int, recorded []record.Event) {
		s, err := scenario.Parse("idle.yaml", []byte(`{apiVersion: windtunnel/v1alpha1, kind: Scenario, seed: 3,
			pools: [{name: default, flow: plain, replicas: 4,
				modelServer: {batching: continuous, accelerator: H100, outputTokens: 16..64}}],
			workload: {requests: 20, rate: `+rate+`}}`))
		if err != nil {
			t.Fatal(err)
		}
		rec := record.Func(func(e record.Event) { recorded = append(recorded, e) })
		w, err := newWorld(s, rec, Options{eachPage: eachPage})
		if err != nil {
			t.Fatal(err)
		}
		for w.start(); w.queue.Len() > 0; events++ {
			at, e := w.queue.Pop()
			w.now = max(w.now, at)
			w.play(e)
			w.recycle()
		}
		return events, recorded
	}
	seldom, recorded := play("0.05", false)
	if often, _ := play("0.5", false); seldom > often+20 {
		t.Errorf("%d events at 0.5 requests a second, %d at 0.05", often, seldom)
	}
	each, probed := play("0.05", true)
	if same := reflect.DeepEqual(recorded, probed); each < 10*seldom || !same {
		t.Errorf("%d events with every probe, %d without; the records are the same: %v", each, seldom, same)
	}
}
