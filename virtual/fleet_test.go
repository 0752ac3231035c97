package virtual

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

func parsed(t interface{ Fatal(...any) }, text string) *scenario.Scenario {
	s, err := scenario.Parse("x.yaml", []byte("apiVersion: windtunnel/v1alpha1\nkind: Scenario\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lives lists the events of servers in the record, with their times in seconds.
func lives(events []record.Event) (out []string) {
	for _, e := range events {
		switch e.Step {
		case record.ServerStarted, record.ServerReady, record.ServerLeaving, record.ServerGone:
			cut := ""
			if n := e.Details.Get("cut"); n != nil {
				cut = fmt.Sprintf(" %v cut", n)
			}
			out = append(out, fmt.Sprintf("%v %s %v%s", e.Time, strings.TrimPrefix(string(e.Step), "server_"),
				e.Details.Get("name"), cut))
		case record.Scaled:
			out = append(out, fmt.Sprintf("%v %v %v to %v", e.Time, e.Details.Get("by"), e.Details.Get("from"),
				e.Details.Get("to")))
		}
	}
	return out
}

// A server that is drained finishes what it has and gets nothing more; one that joins gets its
// share once it has started.
func TestJoinAndDrain(t *testing.T) {
	s := parsed(t, `
pools:
- name: a
  replicas: 2
  modelServer: {prefill: 200ms, interTokenLatency: 100ms, outputTokens: 20}
  lifecycle: {startup: 3s, preStop: 500ms, gracePeriod: 1m}
  incidents:
  - {at: 2s, what: add-server}
  - {at: 10s, what: drain-server, server: 0}
workload: {requests: 100, rate: 5}
`)
	events := recorded(t, s)
	want := []string{"0s started a-0", "0s ready a-0", "0s started a-1", "0s ready a-1", "2s started a-2",
		"5s ready a-2", "10s leaving a-0"}
	got := lives(events)
	if len(got) != len(want)+1 || !slices.Equal(got[:len(want)], want) ||
		!strings.HasSuffix(got[len(want)], "gone a-0") {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	if o := outcomes(events); o["completed"] != 100 {
		t.Errorf("outcomes %v", o)
	}
	for _, e := range events {
		if e.Step == record.EndpointPicked {
			at, server := e.Time, fmt.Sprint(e.Details.Get("name"))
			if server == "a-2" && at < 5*machine.Second || server == "a-0" && at > 10*machine.Second {
				t.Errorf("%s was picked at %v", server, at)
			}
		}
	}
}

// A run is over with its last request: a server that starts still, or one that has its grace, does not
// make it longer, nor dearer.
func TestRunEndsWithItsRequests(t *testing.T) {
	events := recorded(t, parsed(t, `
pools:
- name: a
  modelServer: {prefill: 200ms, interTokenLatency: 100ms, outputTokens: 20}
  lifecycle: {startup: 300s, preStop: 500ms, gracePeriod: 1m}
  incidents: [{at: 2s, what: add-server}]
workload: {requests: 10, rate: 5}
`))
	if got := lives(events); !slices.Equal(got, []string{"0s started a-0", "0s ready a-0", "2s started a-1"}) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	if last := events[len(events)-1]; last.Step != record.Finished || last.Time > 10*machine.Second {
		t.Errorf("it ends with %v", last)
	}
}

// What a server has not finished by the end of its grace period breaks off, as it does where a
// process is killed: 503 before the answer began, a cut answer afterwards.
func TestGracePeriod(t *testing.T) {
	events := recorded(t, parsed(t, `
pools:
- name: a
  replicas: 1
  modelServer: {prefill: 200ms, interTokenLatency: 1s, outputTokens: 30}
  lifecycle: {startup: 1s, preStop: 500ms, gracePeriod: 1m}
  incidents:
  - {at: 0s, what: add-server}
  - {at: 3s, what: drain-server, server: 0, grace: 4s}
workload: {requests: 10, rate: 2, stream: true}
`))
	got := lives(events)
	if last := got[len(got)-1]; !strings.HasPrefix(last, "7s gone a-0") || !strings.HasSuffix(last, "cut") ||
		strings.HasSuffix(last, " 0 cut") {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	o := outcomes(events)
	if o["broken"] == 0 || o["completed"] == 0 || o["broken"]+o["completed"] != 10 {
		t.Errorf("outcomes %v", o)
	}
	reasons := 0
	for _, e := range events {
		if e.Step == record.Aborted && e.Details.Get("reason") == "the server was killed" {
			reasons++
		}
	}
	if reasons != o["broken"] {
		t.Errorf("%d were aborted, %d broke", reasons, o["broken"])
	}
}

const flowControlled = `
  epp:
    deadline: 5m
    config:
      apiVersion: llm-d.ai/v1alpha1
      kind: EndpointPickerConfig
      featureGates: [flowControl]
      plugins: [{type: queue-scorer}, {type: max-score-picker}]
      schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}, {pluginRef: max-score-picker}]}]
`

// With minReplicas 0 the last server ends; who comes then waits in flow control until the
// first one has started.
func TestScaleToZero(t *testing.T) {
	events := recorded(t, parsed(t, `
pools:
- name: a
  replicas: 1
  modelServer: {batching: continuous, outputTokens: 20}
  lifecycle: {startup: 20s, preStop: 1s, gracePeriod: 30s}
  autoscaling: {minReplicas: 0, maxReplicas: 3, pollingInterval: 5s, cooldownPeriod: 30s, scrapeInterval: 5s, syncPeriod: 5s}`+flowControlled+`
workload: {timeout: 5m, requests: 3, conversations: {turns: 2, thinkTime: 120s}, concurrency: 3}
`))
	if o := outcomes(events); o["completed"] != 3 {
		t.Errorf("outcomes %v\n%s", o, strings.Join(lives(events), "\n"))
	}
	text := strings.Join(lives(events), "\n")
	if down, up := strings.Index(text, "keda 1 to 0"), strings.Index(text, "keda 0 to 1"); down < 0 || up < down {
		t.Errorf("%s", text)
	}
}

// Without flow control a pool without servers refuses at once, and the run ends.
func TestNoServers(t *testing.T) {
	events := recorded(t, parsed(t, `
pools:
- name: a
  replicas: 1
  modelServer: {prefill: 10ms, outputTokens: 2}
  lifecycle: {startup: 1s, preStop: 0s, gracePeriod: 5s}
  incidents: [{at: 1s, what: drain-server}]
workload: {requests: 20, rate: 10}
`))
	o := outcomes(events)
	if o["unavailable"] == 0 || o["completed"] == 0 || o["unavailable"]+o["completed"] != 20 {
		t.Errorf("outcomes %v", o)
	}
}

// However the load goes, there are never fewer ready servers than the least after the first has
// started nor more than the most, every request ends once, and the same seed decides the same.
func TestScalingKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.IntRange(0, 2).Draw(t, "least")
		most := rapid.IntRange(max(1, least), 4).Draw(t, "most")
		text := fmt.Sprintf(`
seed: %d
pools:
- name: a
  replicas: %d
  modelServer: {batching: continuous, prefill: 100ms, interTokenLatency: 20ms, outputTokens: 10}
  lifecycle: {startup: %ds..10s, preStop: 1s, gracePeriod: %ds}
  autoscaling:
    {minReplicas: %d, maxReplicas: %d, targets: {running: %d}, pollingInterval: 2s, cooldownPeriod: 10s, scrapeInterval: 2s, syncPeriod: 2s,
     scaleUp: {stabilizationWindow: %ds}, scaleDown: {stabilizationWindow: %ds}}
  incidents: [{at: 12s, what: drain-server}]%sworkload: {timeout: 2m, stages: [{rate: %d, duration: 15s}, {rate: 0.2, duration: 40s}, {rate: 5, duration: 5s}]}
`, rapid.IntRange(1, 50).Draw(t, "seed"), rapid.IntRange(1, most).Draw(t, "replicas"), rapid.IntRange(1, 9).Draw(t, "startup"), rapid.IntRange(2, 30).Draw(t, "grace"),
			least, most, rapid.IntRange(1, 8).Draw(t, "running"), rapid.IntRange(0, 10).Draw(t, "up"),
			rapid.IntRange(0, 10).Draw(t, "down"), flowControlled, rapid.IntRange(1, 9).Draw(t, "rate"))
		var first []string
		for range 2 {
			rec := &recorder{}
			if err := Run(parsed(t, text), rec, nil); err != nil {
				t.Fatal(err)
			}
			sent, ended, ready := 0, map[string]int{}, 0
			for _, e := range rec.events {
				switch e.Step {
				case record.RequestSent:
					sent++
				case record.Finished:
					ended[e.Request]++
				case record.ServerReady:
					if ready++; ready > most {
						t.Fatalf("%d servers of at most %d", ready, most)
					}
				case record.ServerLeaving:
					ready--
				case record.Scaled:
					if to := e.Details.Get("to").(int); to > most || to < least && to != 0 {
						t.Fatalf("%d wanted, out of %d to %d", to, least, most)
					}
				}
			}
			for id, n := range ended {
				if n != 1 {
					t.Fatalf("%s ended %d times", id, n)
				}
			}
			if len(ended) != sent || sent == 0 {
				t.Fatalf("%d sent, %d ended", sent, len(ended))
			}
			if got := lives(rec.events); first == nil {
				first = got
			} else if !slices.Equal(first, got) {
				t.Fatalf("once\n%s\nthen\n%s", strings.Join(first, "\n"), strings.Join(got, "\n"))
			}
		}
	})
}

type recorder struct{ events []record.Event }

func (r *recorder) Record(e record.Event) { r.events = append(r.events, e) }

// A pool that its autoscaler takes to no servers, with nothing to call one back as no flow control holds
// requests, refuses what comes, and the run ends: nobody waits for a server that never comes.
func TestScaledToZeroWithoutFlowControl(t *testing.T) {
	events := recorded(t, parsed(t, `
pools:
- name: a
  replicas: 1
  modelServer: {batching: continuous, outputTokens: 20}
  lifecycle: {startup: 20s, preStop: 1s, gracePeriod: 30s}
  autoscaling: {minReplicas: 0, maxReplicas: 3, pollingInterval: 5s, cooldownPeriod: 30s, scrapeInterval: 5s, syncPeriod: 5s}
workload: {timeout: 5m, requests: 4, conversations: {turns: 2, thinkTime: 120s}, concurrency: 2}
`))
	o := outcomes(events)
	text := strings.Join(lives(events), "\n")
	if !strings.Contains(text, "keda 1 to 0") || o["completed"] == 0 || o["unavailable"] == 0 || o["completed"]+
		o["unavailable"] != 4 {
		t.Errorf("outcomes %v\n%s", o, text)
	}
}

// Whatever decides, more requests than a server takes bring more servers, as its figure says, and
// none of them stay when hardly anybody asks any more.
func TestSignals(t *testing.T) {
	t.Parallel()
	for signal, figure := range map[string]string{
		"queue": "epp-", "queue-guard": "formula is ", "saturation": "pool-saturation is ",
		"tokens, targets: {prefillThroughput: 1000}": "prefill-backlog-seconds is ",
		"kv-cache, targets: {kvCache: 0.1}":          "kv-cache-usage is ",
		"latency, targets: {ttft: 1s}":               "formula is ",
	} {
		t.Run(signal, func(t *testing.T) {
			t.Parallel()
			events := recorded(t, parsed(t, `
pools:
- name: a
  modelServer: {batching: continuous, accelerator: L4, maxNumSeqs: 16}
  lifecycle: {startup: 20s, preStop: 1s, gracePeriod: 1m}
  autoscaling: {signal: `+signal+`, maxReplicas: 8}`+strings.Replace(flowControlled, "plugins: [", "plugins: [{type: inflight-load-producer}, ", 1)+`
workload: {timeout: 20m, stages: [{rate: 4, duration: 6m}, {rate: 0.1, duration: 45m}], prompt: {tokens: 500}, outputTokens: 100}
`))
			most, now := 1, 1
			for _, e := range events {
				if e.Step != record.Scaled {
					continue
				}
				now = e.Details.Get("to").(int)
				if most = max(most, now); e.Time < 360*machine.Second &&
					!strings.HasPrefix(fmt.Sprint(e.Details.Get("reason")), figure) {
					t.Errorf("under load, %v", e)
				}
			}
			if most == 1 || now != 1 {
				t.Errorf("up to %d servers, and %d in the end:\n%s", most, now, strings.Join(lives(events), "\n"))
			}
		})
	}
}

// What an autoscaler's query sums is of all replicas of the picker, and of its own pool alone.
func TestScalingReadsEveryPicker(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 3} {
		events := recorded(t, parsed(t, fmt.Sprintf(`
pools:
- name: a
  modelServer: {batching: continuous, accelerator: H100}
  lifecycle: {startup: 30s}
  epp: {replicas: %d}
  autoscaling: {maxReplicas: 9, scaleUp: {stabilizationWindow: 0s}, triggers: [{name: running, query: sum(llm_d_epp_request_running), target: 16}]}
- name: b
  model: Qwen/Qwen2.5-7B
  replicas: 4
  modelServer: {batching: continuous, accelerator: H100}
workload: {timeout: 10m, concurrency: 100, requests: 200, outputTokens: 3000, classes: [{name: x, share: 60%%}, {name: y, share: 40%%, model: Qwen/Qwen2.5-7B}]}
`, replicas)))
		running, reason := map[string]int{}, ""
		for _, e := range events {
			switch {
			case e.Hop == record.EPP && e.Step == record.EndpointPicked:
				running[fmt.Sprint(e.Details.Get("name"))[:1]]++
			case e.Step == record.Scaled && reason == "":
				reason = fmt.Sprint(e.Details.Get("reason"))
			}
			if reason != "" {
				break
			}
		}
		if want := fmt.Sprintf("running is %d, target 16", running["a"]); reason != want || running["a"] < 40 ||
			running["b"] < 20 {
			t.Errorf("%d replicas of the picker: it says %q, expected %q; %d are at the other pool", replicas, reason,
				want, running["b"])
		}
	}
}

// Every label that the picker's page has in a live run is there for a trigger, and only what a query selects counts: of
// streams as of answers in one piece, and what has been sent on so far.
func TestScalingReadsLabels(t *testing.T) {
	t.Parallel()
	for query, scales := range map[string]bool{
		`sum(llm_d_epp_request_ttft_seconds_count{streaming="true"})`:  true,
		`sum(llm_d_epp_request_ttft_seconds_count{streaming="false"})`: false,
		`sum(llm_d_epp_request_total{priority="0"})`:                   true,
		`sum(llm_d_epp_average_running_requests)`:                      true,
	} {
		events := recorded(t, parsed(t, `
pools:
- name: a
  modelServer: {prefill: 200ms, interTokenLatency: 100ms, outputTokens: 20}
  autoscaling: {maxReplicas: 3, triggers: [{name: x, query: '`+query+`', target: 2}]}
workload: {stream: true, requests: 300, rate: 5}
`))
		scaled := slices.ContainsFunc(events, func(e record.Event) bool { return e.Step == record.Scaled })
		if scaled != scales {
			t.Errorf("%s: scaled %v, expected %v", query, scaled, scales)
		}
	}
}
