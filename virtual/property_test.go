package virtual

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

const talking = "conversations: {turns: 1..8, thinkTime: 0s..200ms}"

// anything draws a scenario in which much goes wrong at once.
func anything(t *rapid.T) string {
	some := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	n := func(label string, low, high int) int { return rapid.IntRange(low, high).Draw(t, label) }
	var b strings.Builder
	apart, published := rapid.Bool().Draw(t, "apart"), some("KV events", "none", "msgpack")
	servers, decode := n("replicas", 1, 3), 0
	decode = servers
	fmt.Fprintf(&b, "apiVersion: windtunnel/v1alpha1\nkind: Scenario\nseed: %d\npools:\n- name: pool\n  replicas: %d\n",
		n("seed", 1, 1<<30), servers)
	sessions := 0
	if apart {
		prefill := n("prefill servers", 1, 2)
		servers += prefill
		sessions = n("sessions", 0, 1) * n("session cache", 1, 5)
		fmt.Fprintf(&b, "  sidecar: routing\n  disaggregation: {prefillReplicas: %d, holdBlocks: %s, connector: %s, "+
			"onPrefillFailure: %s, onTransferFailure: %s, prefillRetries: %d, sessionCache: %d, nic: %s}\n",
			prefill, some("hold", "20ms", "1s", "60s"),
			some("connector", "nixlv2", "nixl", "lmcache", "shared-storage", "offloading", "sglang", "mooncake"),
			some("failed prefill", "error", "local"), some("failed transfer", "fail", "recompute"), n("retries", 0, 2),
			sessions, some("nic", "infiniband-200", "ethernet-10"))
	} else {
		fmt.Fprintf(&b, "  flow: %s\n", some("flow", "held", "plain"))
	}
	fmt.Fprintf(&b, "  modelServer:\n    batching: %s\n    tensorParallelSize: 2\n    outputTokens: 1..20\n    "+
		"numGPUBlocks: %d\n    loraAdapters: [a, b]\n    loraLoadTime: %s\n    kvEvents: {format: %s, interval: "+
		"10ms}\n    faults:\n",
		some("batching", "continuous", "continuous", "static", "none"), n("blocks", 200, 2000),
		some("load time", "0s", "20ms"), published)
	for range n("faults", 1, 4) {
		fault := some("fault", "refuse", "reset", "reset-after=1", "reset-after=3", "die-in-prefill",
			"end-before-part2", "no-body", "lose-kv",
			"stall", "stall=2", "status=503", "status=204", "status=400", "delay=30ms", "delay=10ms;reset")
		fmt.Fprintf(&b, "    - {fault: %s, rate: %d%%, servers: [%d]}\n", fault, n("rate", 1, 40),
			n("faulty server", 0, servers-1))
	}
	if m := n("incidents", 0, 4); m > 0 {
		b.WriteString("  incidents:\n")
		for range m {
			at := n("at", 0, 3000)
			switch what := some("incident", "lose-rank", "crash", "restart-sidecar", "lose-index"); {
			case what == "lose-index" && published != "none":
				fmt.Fprintf(&b, "  - {at: %dms, what: lose-index}\n", at)
			case what == "restart-sidecar" && apart:
				fmt.Fprintf(&b, "  - {at: %dms, what: restart-sidecar, server: %d}\n", at, n("server", 0, decode-1))
			case what == "lose-rank":
				fmt.Fprintf(&b, "  - {at: %dms, what: lose-rank, rank: 1, server: %d, for: %dms}\n", at,
					n("server", 0, servers-1), n("for", 0, 1000))
			default:
				fmt.Fprintf(&b, "  - {at: %dms, what: crash, server: %d, for: %dms}\n", at, n("server", 0, servers-1),
					n("for", 0, 1000))
			}
		}
	}
	fmt.Fprintf(&b, "workload:\n  requests: %d\n  timeout: 5s\n  stream: %v\n  %s\n  bodyFields: '%s'\n  prompt: "+
		"{%s}\n  loraAdapters: [{name: a, share: 30%%}, {name: b, share: 20%%}]\n  leaving: {after: 1ms..1s, rate: "+
		"%d%%}\n",
		n("requests", 10, 80), rapid.Bool().Draw(t, "stream"), some("api", talking, talking, "api: completions"),
		some("fields", "{}", "{}", `{"cache_salt": "x"}`, `{"n": 2}`, `{"cache_hit_threshold": 0.5}`,
			`{"temperature": -1}`, `{"stop": ["the"]}`),
		some("prompt", "characters: 40..2000", "characters: 100..1000, shared: {groups: 3, characters: 500}",
			"text: a fixed text of some length that is the same each time", "characters: 20..300, alphabet: unicode"),
		n("leaving", 1, 30))
	if rapid.Bool().Draw(t, "open loop") {
		fmt.Fprintf(&b, "  rate: %d\n", n("per second", 5, 100))
	} else {
		fmt.Fprintf(&b, "  concurrency: %d\n", n("concurrency", 1, 20))
	}
	if h := some("hops", "measured", "none", "long", "any"); h != "measured" {
		for _, hop := range []string{"network", "envoy", "extProc", "sidecar", "scrape"} {
			of := map[string]string{"none": "0", "long": "20ms",
				"any": some(hop, "0", "1ms", "0s..50ms", "lognormal(10ms, 30ms, max=1s)")}
			if hop == "network" {
				b.WriteString("hops:\n")
			}
			fmt.Fprintf(&b, "  %s: %s\n", hop, of[h])
		}
	}
	return b.String()
}

// Whatever goes wrong in whatever order: every request has one outcome, nothing
// stays in flight, no block is held for anybody, the picker's gauges are zero,
// and the same seed gives the same run, also where only its steps are read, where
// every page of metrics is made at its time, and in bytes.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := anything(t)
		config := rapid.SampledFrom([]string{"", scored, controlled}).Draw(t, "picker")
		play := func(listens func(record.Func) record.Recorder, eachPage, inBytes bool) (events []record.Event,
			w *world) {
			s, err := scenario.Parse("any.yaml", []byte(text))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if p := &s.Pools[0]; config != "" && !p.EPP.Config.Given() {
				p.EPP.Config = scenario.PickerConfig{File: "picker.yaml", Text: []byte(config)}
			}
			w, err = newWorld(s, listens(func(e record.Event) { events = append(events, e) }),
				Options{eachPage: eachPage})
			if err != nil {
				t.Fatal(err)
			}
			if inBytes {
				w.load.Write()
			}
			if err := w.run(nil); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			return events, w
		}
		all := func(f record.Func) record.Recorder { return f }
		events, w := play(all, false, false)
		ended, sent := map[string]int{}, 0
		for i, e := range events {
			switch {
			case e.Step == record.RequestSent:
				sent++
			case e.Step == record.Finished:
				ended[e.Request]++
			}
			// An engine begins a step a nanosecond after the arrivals of that moment
			// and reports it then, with the time of the arrivals.
			if i > 0 && e.Time+1 < events[i-1].Time {
				t.Fatalf("event %d is earlier than the one before: %v, %v\n%s", i, events[i-1], e, text)
			}
		}
		for id, n := range ended {
			if n != 1 {
				t.Fatalf("%s has %d outcomes\n%s", id, n, text)
			}
		}
		if sent != w.load.Requests || len(ended) != sent {
			t.Fatalf("%d requests sent, %d ended\n%s", sent, len(ended), text)
		}
		for _, c := range w.pools[0].kv.check() {
			if !c.OK() {
				t.Fatalf("%+v\n%s", c, text)
			}
		}
		again, _ := play(func(f record.Func) record.Recorder { return counting{f} }, true, false)
		for i := range max(len(again), len(events)) {
			if i >= min(len(again), len(events)) || stepOf(again[i]) != stepOf(events[i]) {
				t.Fatalf("the same seed gives another run from event %d\n%s", i, text)
			}
		}
		written, _ := play(all, false, true)
		if d := firstDifference(events, written); d != "" {
			t.Fatalf("the same seed gives another run in bytes: %s\n%s", d, text)
		}
	})
}

// counting is a recorder that reads steps alone.
type counting struct{ record.Func }

func (counting) Explained() int { return 0 }
func (counting) Detailed() bool { return false }

// stepOf is an event without its details but the outcome.
func stepOf(e record.Event) string {
	return fmt.Sprint(e.Time, e.Request, e.Attempt, e.Hop, e.Step, e.Endpoint, e.Details.Get("outcome"))
}
