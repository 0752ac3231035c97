package stack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/freeport"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// liveAsVirtual plays a scenario both ways and holds the two records together:
// the same steps of every request at every hop, and the same outcome.
func liveAsVirtual(t *testing.T, text string, but ...record.Hop) (live, played []record.Event) {
	t.Helper()
	live, played = bothTimes(t, text, nil)
	sameRecord(t, live, played, but...)
	return live, played
}

// liveInStep is liveAsVirtual with a live run that follows virtual time's order of events as inStep says.
func liveInStep(t *testing.T, text string, but ...record.Hop) (live, played []record.Event) {
	t.Helper()
	live, played = bothTimes(t, text, func(o *Options) {
		o.Recorder = inStep{o.Recorder.(*recording), t, playVirtually(t, text)}
	})
	sameRecord(t, live, played, but...)
	return live, played
}

// inStep is a recorder that keeps a client from sending, and a server from beginning its answer, until the live run
// has come as far as virtual time had: as many incidents began and ended, and the picker received the same requests.
// On a machine that stalls, requests would else overtake each other, or an incident come too late.
type inStep struct {
	*recording
	t      *testing.T
	played []record.Event
}

func (r inStep) Record(e record.Event) {
	if e.Hop == record.Client && e.Step == record.RequestSent || e.Hop == record.Server &&
		e.Step == record.FirstTokenSent {
		i := slices.IndexFunc(r.played, func(x record.Event) bool {
			return x.Hop == e.Hop && x.Step == e.Step && x.Request == e.Request
		})
		want := progress(r.played[:max(0, i)])
		r.await(r.t, fmt.Sprintf("what virtual time has before %s of %s", e.Step, e.Request),
			func(all []record.Event) bool {
				have := progress(all)
				for what, n := range want {
					if have[what] < n {
						return false
					}
				}
				return true
			})
	}
	r.recording.Record(e)
}

// progress counts incidents' beginnings and ends, and for each request how often a picker has received it.
func progress(events []record.Event) map[string]int {
	n := map[string]int{}
	for _, e := range events {
		switch {
		case e.Step == record.IncidentBegan || e.Step == record.IncidentEnded:
			n[string(e.Step)]++
		case e.Hop == record.EPP && e.Step == record.RequestReceived:
			n[e.Request] = 1
		}
	}
	return n
}

// sameRecord fails unless both records have the same steps of every request, and the same outcome.
func sameRecord(t *testing.T, live, played []record.Event, but ...record.Hop) {
	t.Helper()
	if err := record.Same(live, played, append(but, record.Envoy)...); err != nil {
		t.Fatalf("live and virtual differ: %v", err)
	}
	ended := map[string]string{}
	for _, e := range live {
		if e.Step == record.Finished {
			ended[e.Request] = fmt.Sprint(e.Details.Get("outcome"))
		}
	}
	for _, e := range played {
		if e.Step == record.Finished && ended[e.Request] != fmt.Sprint(e.Details.Get("outcome")) {
			t.Errorf("%s: live %s, virtual %v", e.Request, ended[e.Request], e.Details)
		}
	}
}

// playVirtually returns the events of a scenario in virtual time.
func playVirtually(t *testing.T, text string) (played []record.Event) {
	t.Helper()
	s, err := scenario.Parse("test.yaml", []byte(text))
	if err == nil {
		err = virtual.Run(s, record.Func(func(e record.Event) { played = append(played, e) }), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return played
}

// bothTimes plays a scenario both ways. Incidents of the live run begin and end once as much has
// happened as before them in virtual time, however long that takes.
func bothTimes(t *testing.T, text string, change func(*Options)) (live, played []record.Event) {
	t.Helper()
	played = playVirtually(t, text)
	s, err := scenario.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, func(o *Options) {
		o.moment = momentsOf(played, o.Recorder.(*recording))
		if strings.Contains(text, "restart-epp") {
			first := freeport.Row(t, 6)
			o.Ports = Ports{ExtProc: first, Health: first + 2, Metrics: first + 4}
		}
		if change != nil {
			change(o)
		}
	})
	live = r.load()
	r.settled()
	return live, played
}

// momentsOf is Options.moment: it waits for the next of the incidents' beginnings and ends in
// played until live has as many events of requests, hop by hop and step by step, as came before it.
func momentsOf(played []record.Event, live *recording) func(context.Context, record.Step) {
	type kind struct {
		hop  record.Hop
		step record.Step
	}
	// counts are how many of each kind come before the incident with that number, or are there at all.
	counts := func(events []record.Event, number int) map[kind]int {
		n := map[kind]int{}
		for _, e := range events {
			switch {
			case e.Step == record.IncidentBegan || e.Step == record.IncidentEnded:
				if number--; number < 0 {
					return n
				}
			case e.Request != "" && e.Hop != record.Envoy:
				n[kind{e.Hop, e.Step}]++
			}
		}
		return n
	}
	next := 0
	return func(ctx context.Context, _ record.Step) {
		want := counts(played, next)
		next++
		for reached := false; !reached && ctx.Err() == nil; pause.For(ctx, 5*time.Millisecond) {
			have := counts(live.all(), len(played))
			reached = true
			for k, n := range want {
				reached = reached && have[k] >= n
			}
			// of more requests than then it is later, whatever became of them
			sent := kind{record.Client, record.RequestSent}
			reached = reached || have[sent] > want[sent]
		}
	}
}

// Faults of single requests: the same steps in wall and in virtual time. Where
// a connection breaks in the middle of an answer, how much of it has passed
// Envoy by then is a race in wall time; those are left to other tests.
func TestFaultsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for k, kind := range []string{"held", "plain"} {
		for i, fault := range []string{"refuse", "reset", "die-in-prefill", "status=503", "status=429", "status=204",
			"no-body", "stall", "stall=1", "stall=2", "delay=50ms", "end-before-part2"} {
			if !nightly.Each(i+k, 4) { // by day half of the faults, each in one flow
				continue
			}
			t.Run(kind+" "+fault, func(t *testing.T) {
				t.Parallel()
				liveAsVirtual(t, fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    flow: %s
    modelServer: {prefill: 20ms, interTokenLatency: 2ms, outputTokens: 5, faults: [{fault: %s, requests: [2]}]}
workload: {requests: 3, timeout: 5s}
`, kind, fault))
			})
		}
	}
}

// The client leaves on purpose in the hold, or while tokens come: everybody
// forgets the request, in both times by the same steps.
func TestLeavingLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"held", "plain"} {
		// Far from the steps around it, also on a machine that stalls for seconds.
		for _, after := range []string{"3s", "9s"} {
			t.Run(kind+" "+after, func(t *testing.T) {
				t.Parallel()
				live, _ := liveAsVirtual(t, fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    flow: %s
    modelServer: {prefill: 6s, interTokenLatency: 300ms, outputTokens: 20}
workload: {requests: 4, concurrency: 4, leaving: {after: %s, requests: [2, 3]}}
`, kind, after))
				left := 0
				for _, e := range live {
					if e.Step == record.ClientLeft {
						left++
					}
				}
				if left != 2 {
					t.Errorf("%d clients left, expected 2", left)
				}
			})
		}
	}
}

const apartText = `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    model: m
    replicas: 1
    sidecar: routing
    disaggregation: {prefillReplicas: 1, holdBlocks: %s%s}
    modelServer: {batching: continuous, prefill: %s, interTokenLatency: 2ms, outputTokens: 8, numGPUBlocks: 4096, maxModelLen: 16384%s}
%s
workload: {requests: 3, timeout: 20s, prompt: {characters: 2000}%s}
`

// Every way in which prefill and decode apart can go wrong, and right, in wall
// and in virtual time: the same steps, one outcome each, nothing kept.
func TestDisaggregatedLiveAsVirtual(t *testing.T) {
	t.Parallel()
	faulty := func(fault string, server int) string {
		return fmt.Sprintf(", faults: [{fault: %s, requests: [2], servers: [%d]}]", fault, server)
	}
	const decode, prefill = 0, 1
	for _, c := range []struct{ name, disagg, prefill, server, pool, load, hold string }{
		{name: "nothing goes wrong"},
		{name: "not streamed", load: ", stream: false"},
		{name: "the prefill pod dies in its prefill", server: faulty("die-in-prefill", prefill)},
		{name: "it dies and decode does it all", disagg: ", onPrefillFailure: local",
			server: faulty("die-in-prefill", prefill)},
		{name: "it dies and is tried again", disagg: ", prefillRetries: 1", server: faulty("die-in-prefill", prefill)},
		{name: "the prefill pod refuses", server: faulty("status=503", prefill)},
		{name: "the decode pod dies after the prefill", server: faulty("reset", decode)},
		{name: "the decode pod refuses", server: faulty("status=500", decode)},
		{name: "the blocks are gone", hold: "3s", server: faulty("delay=6s", decode)},
		{name: "the transfer fails", server: faulty("lose-kv", decode)},
		{name: "the transfer fails and the prompt is computed again", disagg: ", onTransferFailure: recompute",
			server: faulty("lose-kv", decode)},
		{name: "the prefill pod stalls", server: faulty("stall", prefill)},
		{name: "the client leaves the prefill leg", prefill: "6s", load: ", leaving: {requests: [2], after: 3s}"},
		{name: "the client leaves the decode leg", server: faulty("stall=2", decode),
			load: ", leaving: {requests: [2], after: 8s}"},
		{name: "the sidecar restarts in the prefill leg", prefill: "2500ms",
			load: ", conversations: {turns: 3, thinkTime: 2s}",
			pool: "    incidents: [{at: 1500ms, what: restart-sidecar, server: 0}]"},
		{name: "the prefill engine crashes", prefill: "2500ms", load: ", conversations: {turns: 3, thinkTime: 1s}",
			pool: "    incidents: [{at: 1500ms, what: crash, server: 1, for: 100ms}]"},
		{name: "nixl v1", disagg: ", connector: nixl"},
		{name: "shared storage", disagg: ", connector: shared-storage"},
		{name: "an external cache and conversations", disagg: ", connector: lmcache",
			load: ", conversations: {turns: 3}"},
		{name: "lmcache", disagg: ", connector: lmcache"},
		{name: "pipelined over ethernet", disagg: ", pipelined: true, nic: ethernet-100, compressINT8: true"},
		{name: "sessions", disagg: ", sessionCache: 10", load: ", conversations: {turns: 3}"},
		{name: "sessions by header", disagg: ", sessionCache: 10",
			load: ", conversations: {turns: 3, sessionHeader: x-session-id}, stream: false"},
		{name: "sessions and a restart", disagg: ", sessionCache: 10",
			load: ", conversations: {turns: 3, thinkTime: 2s}",
			pool: "    incidents: [{at: 1s, what: restart-sidecar, server: 0}]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.prefill == "" {
				c.prefill = "20ms"
			}
			if c.hold == "" {
				c.hold = "8s" // longer than a busy machine takes between the legs
			}
			play := liveAsVirtual
			if c.pool != "" { // the next turns wait for the incident
				play = liveInStep
			}
			live, played := play(t, fmt.Sprintf(apartText, c.hold, c.disagg, c.prefill, c.server, c.pool, c.load))
			if a, b := fetched(live),
				fetched(played); a != b || c.name == "nothing goes wrong" && !strings.HasPrefix(a, "3 caches") {
				t.Errorf("live %s were fetched, virtually %s", a, b)
			}
		})
	}
}

// fetched says how many KV caches of how many bytes were fetched.
func fetched(events []record.Event) string {
	n, bytes := 0, 0
	for _, e := range events {
		if b, ok := e.Details.Get("fetched_bytes").(int); ok {
			n, bytes = n+1, bytes+b
		}
	}
	return fmt.Sprintf("%d caches of %d bytes", n, bytes)
}

// Connectors that send both legs at once: which server hears of it first is a
// race in wall time, so that only what happened is compared, and not its order.
func TestTogetherLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for _, connector := range []string{"offloading", "sglang", "mooncake"} {
		t.Run(connector, func(t *testing.T) {
			t.Parallel()
			text := fmt.Sprintf(apartText, "60s", ", connector: "+connector, "20ms", "", "", "")
			parse := func() *scenario.Scenario {
				s, err := scenario.Parse("test.yaml", []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			happened := func(events []record.Event) map[string]int {
				n := map[string]int{}
				for _, e := range events {
					if e.Hop == record.Envoy || e.Step == record.ScrapeFailed { // a page may be late on a busy machine
						continue
					}
					what := fmt.Sprint(e.Request, " ", e.Hop, " ", e.Step)
					for _, key := range []string{"cached_tokens", "outcome", "prompt_tokens", "tokens"} {
						if v := e.Details.Get(key); v != nil && e.Hop != record.Sidecar {
							what += fmt.Sprint(" ", key, " ", v)
						}
					}
					n[what]++
				}
				return n
			}
			r := start(t, parse(), nil)
			live := r.load()
			r.settled()
			var played []record.Event
			if err := virtual.Run(parse(), record.Func(func(e record.Event) { played = append(played, e) }),
				nil); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(happened(live), happened(played)); d != "" {
				t.Errorf("live and virtual differ: %s", d)
			}
		})
	}
}

// Conversations of several turns with LoRA adapters on servers that batch: the
// same requests, word for word, so that caches find the same.
func TestConversationsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	live, played := liveAsVirtual(t, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    model: m
    replicas: 1
    modelServer: {batching: continuous, prefill: 10ms, interTokenLatency: 1ms, outputTokens: 40, numGPUBlocks: 4096, maxModelLen: 16384, loraAdapters: [sql, chat], maxLoras: 2}
workload:
  requests: 24
  prompt: {characters: 600}
  conversations: {turns: 2..5, thinkTime: 1ms..10ms}
  loraAdapters: [{name: sql, share: 30%}, {name: chat, share: 30%}]
`)
	choices := func(events []record.Event) map[string]string {
		out := map[string]string{}
		for _, e := range events {
			switch {
			case e.Hop == record.Server && e.Step == record.RequestReceived:
				out[e.Request] += fmt.Sprint(e.Details.Get("model"), " ", e.Details.Get("prompt_tokens"))
			case e.Hop == record.Server && e.Step == record.PrefillStarted:
				out[e.Request] += fmt.Sprint(" cached ", e.Details.Get("cached_tokens"))
			case e.Hop == record.Server && e.Step == record.FirstTokenSent:
				out[e.Request] += fmt.Sprint(" ", e.Details.Get("token"))
			}
		}
		return out
	}
	a, b := choices(live), choices(played)
	adapters, cached := 0, 0
	for id := range a {
		if a[id] != b[id] {
			t.Errorf("%s: live %q, virtual %q", id, a[id], b[id])
		}
		if a[id][:1] != "m" {
			adapters++
		}
	}
	for _, e := range played {
		if n, ok := e.Details.Get("cached_tokens").(int); ok && n > 100 {
			cached++
		}
	}
	if adapters == 0 || adapters == len(a) || cached < len(a)/4 {
		t.Errorf("of %d requests %d asked for adapters, %d found what was said before", len(a), adapters, cached)
	}
}

// A rank of a tensor-parallel group is lost: what the group has fails, it answers
// 503 until it is back, and all of that is the same in both times.
func TestLostRankLiveAsVirtual(t *testing.T) {
	t.Parallel()
	const text = `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    model: m
    replicas: 1
    modelServer: {batching: continuous, coefficients: {step: 2s}, outputTokens: 1, numGPUBlocks: 4096, maxModelLen: 16384, tensorParallelSize: 2}
    incidents: [{at: 1s, what: lose-rank, rank: 1, for: 3s}]
    epp: # does not ask servers whether they are ready, and sends requests to one that is not
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins: [{type: metrics-data-source}, {type: core-metrics-extractor}, {type: queue-scorer}]
        schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
        dataLayer: {injectDefaults: false, sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]}
workload:
  requests: 3
  conversations: {turns: 3, thinkTime: 2s}
`
	live, _ := liveAsVirtual(t, text)
	var ended []any
	for _, e := range live {
		if e.Step == record.Finished {
			ended = append(ended, e.Details.Get("status"))
		}
	}
	// In flight when the rank is lost; dead; back again.
	if want := "[500 503 200]"; fmt.Sprint(ended) != want {
		t.Errorf("the requests were answered %v, expected %s", ended, want)
	}
}

// The picker's index is lost in the middle of a run: requests end whole in both
// times, what is stored from then on is indexed again, and the report says why
// the rest is not.
func TestLostIndexLiveAsVirtual(t *testing.T) {
	t.Parallel()
	text := indexed + `    incidents: [{at: 300ms, what: lose-index}]
workload: {requests: 6, prompt: {characters: 2000, shared: {groups: 2, characters: 1000}}, conversations: {turns: 6, thinkTime: 100ms}}
`
	_, played := liveAsVirtual(t, text)
	if len(played) == 0 {
		t.Fatal("nothing was played")
	}
	s, err := scenario.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	checks, err := virtual.Play(s, nil, virtual.Options{})
	if err != nil || len(checks) != 1 || checks[0].Missing == 0 || checks[0].Extra > 0 || !checks[0].OK() {
		t.Errorf("%v %+v", err, checks)
	}
}
