package virtual

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
	"github.com/windtunnel/windtunnel/scenario"
)

// living takes lives, and writes down the events that they stand for.
type living struct {
	events  []record.Event
	sending int
	lives   int
	apart   int // of them prefilled elsewhere
}

func (x *living) Record(e record.Event)          { x.events = append(x.events, e) }
func (x *living) Explained() int                 { return 0 }
func (x *living) Detailed() bool                 { return false }
func (x *living) Lives() record.Lives            { return x }
func (x *living) Sending(_ machine.Time, by int) { x.sending += by }
func (x *living) Lived(l *record.Life) {
	x.sending, x.lives = x.sending-1, x.lives+1
	if l.Sidecar != nil && l.Sidecar.Prefiller != "" {
		x.apart++
	}
	for e := range l.Events {
		x.events = append(x.events, e)
	}
}

// read are the events with the details that a summary reads, in an order of their own.
func (x *living) read() []record.Event {
	for i := range x.events {
		e := &x.events[i]
		e.Details = slices.DeleteFunc(slices.Clone(e.Details), func(d record.Detail) bool {
			return e.Step == record.PrefillDecided || e.Step == record.PrefillLegEnded ||
				!slices.Contains([]string{"class", "slo", "outcome", "tokens", "prompt_tokens", "cached_tokens",
					"fetched_bytes", "fetched_us", "reason"}, d.Key)
		})
		if len(e.Details) == 0 {
			e.Details = nil
		}
	}
	slices.SortStableFunc(x.events, func(a, b record.Event) int {
		return cmp.Or(cmp.Compare(a.Request, b.Request), cmp.Compare(a.Time, b.Time), cmp.Compare(a.Hop, b.Hop),
			cmp.Compare(a.Step, b.Step))
	})
	return x.events
}

// connectors are all that a scenario may name, the first of them more often than others.
func connectors() []string {
	names := []string{connector.All[0].Name, connector.All[0].Name, connector.All[0].Name}
	for _, c := range connector.All {
		names = append(names, c.Name)
	}
	return names
}

// plain draws a scenario in which requests may be direct.
func plain(t *rapid.T) string {
	some := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	n := func(label string, low, high int) int { return rapid.IntRange(low, high).Draw(t, label) }
	var b strings.Builder
	apart := ""
	if rapid.Bool().Draw(t, "apart") {
		apart = fmt.Sprintf("  sidecar: routing\n  disaggregation: {prefillReplicas: %d, holdBlocks: %s, connector: "+
			"%s, onTransferFailure: %s, nic: %s}\n", n("prefill servers", 1, 2),
			some("hold", "1ms", "20ms", "60s"), some("connector", connectors()...),
			some("failed transfer", "fail", "recompute"), some("nic", "infiniband-200", "ethernet-10"))
	}
	fmt.Fprintf(&b, "apiVersion: windtunnel/v1alpha1\nkind: Scenario\nseed: %d\npools:\n- name: pool\n  flow: "+
		"plain\n  replicas: %d\n%s  modelServer: {batching: %s, outputTokens: %s, numGPUBlocks: %d, loraAdapters: "+
		"[a]}\n",
		n("seed", 1, 1<<30), n("replicas", 1, 3), apart, some("batching", "continuous", "continuous", "static", "none"),
		some("output", "1..20", "1", "100"), n("blocks", 100, 1000))
	fmt.Fprintf(&b, "workload:\n  requests: %d\n  timeout: %s\n  stream: %v\n  %s\n  bodyFields: '%s'\n  prompt: "+
		"{%s}\n  loraAdapters: [{name: a, share: 30%%}]\n",
		n("requests", 5, 60), some("timeout", "2m", "5s", "1h", "300ms", "40ms", "21ms"),
		rapid.Bool().Draw(t, "stream"), some("api", talking, "api: completions", "maxTokens: 30"),
		some("fields", "{}", "{}", "{}", `{"cache_salt": "x"}`, `{"n": 2}`, `{"temperature": -1}`, `{"stop": ["the"]}`),
		some("prompt", "characters: 40..2000", "characters: 1..100, shared: {groups: 3, characters: 500}",
			"text: a fixed text that is the same each time"))
	if rapid.Bool().Draw(t, "open loop") {
		fmt.Fprintf(&b, "  rate: %d\n", n("per second", 5, 200))
	} else {
		fmt.Fprintf(&b, "  concurrency: %d\n", n("concurrency", 1, 20))
	}
	if h := some("hops", "measured", "none", "long", "any"); h != "measured" {
		b.WriteString("hops:\n")
		for _, hop := range []string{"network", "envoy", "extProc", "sidecar", "scrape"} {
			fmt.Fprintf(&b, "  %s: %s\n", hop,
				map[string]string{"none": "0", "long": "20ms",
					"any": some(hop, "0", "1ms", "0s..50ms", "lognormal(10ms, 30ms, max=1s)")}[h])
		}
	}
	return b.String()
}

// A direct request has the record of one that takes every step, in bytes or not, and so
// has one that becomes such: because it is refused, or its client gives it up, wherever it is.
func TestDirectGivesTheSameRecord(t *testing.T) {
	direct, became := 0, 0
	same := func(t rapid.TB, text, config string, stop int) {
		play := func(short, inBytes bool) *living {
			s, err := scenario.Parse("any.yaml", []byte(text))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if config != "" {
				s.Pools[0].EPP.Config = scenario.PickerConfig{File: "picker.yaml", Text: []byte(config)}
			}
			x := &living{}
			w, err := newWorld(s, x, Options{eachScore: !short})
			if err != nil {
				t.Fatal(err)
			}
			w.pools[0].direct = w.pools[0].direct && short
			if inBytes {
				w.load.Write()
			}
			w.start()
			for w.queue.Len() > 0 {
				at, e := w.queue.Pop()
				w.now = max(w.now, at)
				w.play(e)
				w.recycle()
				if w.done >= stop {
					w.interrupted()
					// What happens at that very moment may have happened, or not.
					x.events = slices.DeleteFunc(x.events, func(e record.Event) bool { return e.Time == w.now })
					return x
				}
			}
			if err := w.settled(); err != nil || x.sending != 0 {
				t.Fatal(err, x.sending)
			}
			became += w.done - x.lives
			direct += x.lives
			return x
		}
		long := play(false, false).read()
		if d := firstDifference(play(true, false).read(), long); d != "" {
			t.Fatalf("%s\n%s", d, text)
		}
		if d := firstDifference(play(false, true).read(), long); d != "" {
			t.Fatalf("in bytes: %s\n%s", d, text)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		same(t, plain(t), rapid.SampledFrom([]string{"", scored, refusing}).Draw(t, "picker"),
			rapid.IntRange(1, 200).Draw(t, "stop"))
	})
	// Clients that give up while the answer's end is between the picker and them, when the picker
	// has forgotten the request.
	same(t, `apiVersion: windtunnel/v1alpha1
kind: Scenario
seed: 1
pools:
- name: pool
  flow: plain
  replicas: 2
  sidecar: routing
  disaggregation: {prefillReplicas: 1, holdBlocks: 1ms, connector: nixlv2, onTransferFailure: fail, nic: infiniband-200}
  modelServer: {batching: continuous, outputTokens: 1..20, numGPUBlocks: 100, loraAdapters: [a]}
workload:
  requests: 36
  timeout: 300ms
  stream: false
  conversations: {turns: 1..4, thinkTime: 0s..200ms}
  prompt: {characters: 1..100, shared: {groups: 3, characters: 500}}
  loraAdapters: [{name: a, share: 30%}]
  concurrency: 5
hops: {network: 20ms, envoy: 20ms, extProc: 20ms, sidecar: 20ms, scrape: 20ms}
`, scored, 88)
	if direct == 0 || became == 0 {
		t.Errorf("%d requests were direct, and %d were not", direct, became)
	}
}

// Requests that a sidecar prefills elsewhere are direct, where their connector allows it.
func TestPrefilledElsewhereIsDirect(t *testing.T) {
	for name, want := range map[string]int{"nixlv2": 20, "shared-storage": 0} {
		s, err := scenario.Parse("any.yaml", fmt.Appendf(nil, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools: [{name: pool, flow: plain, replicas: 2, sidecar: routing, disaggregation: {prefillReplicas: 2, connector: %s}, modelServer: {batching: continuous, outputTokens: 5, numGPUBlocks: 4096}}]
workload: {requests: 20, rate: 20, prompt: {characters: 2000}}
`, name))
		if err != nil {
			t.Fatal(err)
		}
		x := &living{}
		if _, err := Play(s, x, Options{}); err != nil || x.apart != want {
			t.Errorf("%s: %d of 20 requests were direct and prefilled elsewhere, expected %d (%v)", name, x.apart, want,
				err)
		}
	}
}

// refusing is a picker that finds no endpoint for anybody.
const refusing = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: label-selector-filter, parameters: {matchLabels: {nobody: has}}}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: label-selector-filter}]
`
