package virtual

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

// between is how long a request took from one step to the next one of another
// kind behind it, in milliseconds.
func between(events []record.Event, from, to string) string {
	var out []string
	for i, e := range events {
		if fmt.Sprint(e.Hop, ".", e.Step) != from {
			continue
		}
		for _, f := range events[i:] {
			if f.Request == e.Request && fmt.Sprint(f.Hop, ".", f.Step) == to {
				if took := fmt.Sprint((f.Time - e.Time).Duration().Milliseconds()); !slices.Contains(out, took) {
					out = append(out, took)
				}
				break
			}
		}
	}
	return fmt.Sprint(out)
}

// Every message crosses the hops that lie between its ends, whatever it says:
// network 1 ms, Envoy 10 ms, ext_proc 100 ms, sidecar 1 s.
func TestHops(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, pool, load string
		stream           bool
		want             map[[2]string]string
	}{
		{"plain", "modelServer: {prefill: 20ms}", "", true, map[[2]string]string{
			{"client.request_sent", "epp.request_received"}:          "[111]",
			{"epp.request_passed", "server.request_received"}:        "[101]",
			{"server.first_token_sent", "epp.first_token_seen"}:      "[111]",
			{"epp.first_token_seen", "client.first_token_received"}:  "[101]",
			{"server.last_token_sent", "epp.response_end_seen"}:      "[111]",
			{"epp.response_end_seen", "client.last_token_received"}:  "[101]",
			{"client.last_token_received", "client.finished"}:        "[0]",
			{"epp.response_headers_seen", "client.request_received"}: "[]",
		}},
		{"held", "flow: held, modelServer: {prefill: 20ms}", "", false, map[[2]string]string{
			{"client.request_sent", "epp.request_received"}:          "[111]",
			{"epp.part1_sent", "server.part1_received"}:              "[101]",
			{"server.first_token_sent", "epp.first_token_seen"}:      "[111]",
			{"epp.part2_sent", "server.part2_received"}:              "[101]",
			{"epp.first_token_seen", "client.first_token_received"}:  "[101]",
			{"server.last_token_sent", "client.last_token_received"}: "[212]",
		}},
		{"prefill elsewhere", "sidecar: routing, disaggregation: {prefillReplicas: 1}, modelServer: {batching: " +
			"continuous, prefill: 20ms, interTokenLatency: 1ms, numGPUBlocks: 1000, maxModelLen: 8192}",
			", prompt: {characters: 2000}", true, map[[2]string]string{
				{"epp.request_passed", "sidecar.request_received"}:          "[101]",
				{"sidecar.prefill_leg_sent", "server.request_received"}:     "[1001]",
				{"sidecar.decode_leg_sent", "server.request_received"}:      "[1000]",
				{"sidecar.first_token_seen", "epp.first_token_seen"}:        "[111]",
				{"sidecar.response_end_seen", "client.last_token_received"}: "[212]",
			}},
		{"the client leaves", "modelServer: {prefill: 20s}", ", leaving: {after: 1s, rate: 100%}", true,
			map[[2]string]string{
				{"client.client_left", "client.finished"}:   "[0]",
				{"client.client_left", "epp.stream_failed"}: "[111]",
				{"client.client_left", "server.aborted"}:    "[12]",
			}},
		{"the client leaves before anybody knows of it", "modelServer: {prefill: 20s}",
			", leaving: {after: 20ms, rate: 100%}", true, map[[2]string]string{
				{"client.request_sent", "epp.request_received"}:   "[111]",
				{"client.client_left", "epp.stream_failed"}:       "[111]",
				{"client.client_left", "server.aborted"}:          "[]",
				{"client.client_left", "server.request_received"}: "[]",
			}},
		{"the picker answers", "flow: held, epp: {holdLimit: 1s}, modelServer: {prefill: 500ms, faults: [{fault: " +
			"delay=5s}]}", "", true, map[[2]string]string{
			{"epp.part1_sent", "epp.answered"}:  "[1000]",
			{"epp.answered", "client.finished"}: "[101]",
		}},
		{"the server refuses", "modelServer: {prefill: 20ms, faults: [{fault: status=503}]}", "", true,
			map[[2]string]string{
				{"server.rejected", "epp.response_headers_seen"}: "[111]",
				{"server.rejected", "client.finished"}:           "[212]",
			}},
		{"the connection is reset", "modelServer: {prefill: 20ms, faults: [{fault: reset-after=3}]}", "", true,
			map[[2]string]string{
				{"server.aborted", "epp.stream_failed"}: "[111]",
				{"server.aborted", "client.finished"}:   "[212]",
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := parse(t, c.pool, fmt.Sprintf("requests: 4, concurrency: 4, stream: %v%s", c.stream, c.load))
			s.Hops = scenario.Hops{Network: dist.Fixed(1e6), Envoy: dist.Fixed(10e6), ExtProc: dist.Fixed(100e6),
				Sidecar: dist.Fixed(1e9)}
			events := recorded(t, s)
			got := map[[2]string]string{}
			for k := range c.want {
				got[k] = between(events, k[0], k[1])
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// Requests of a closed loop come back between the engine's steps and not on
// their borders, so that they wait for the next one. Where no hop takes time,
// they never do.
func TestClosedLoopsQueue(t *testing.T) {
	t.Parallel()
	queue := func(change func(*scenario.Hops)) report.SpanSummary {
		s := parse(t, "model: llama-3.1-8b, replicas: 2, modelServer: {batching: continuous, accelerator: H100, "+
			"source: measured, outputTokens: 8..24}, epp: {config: {plugins: [{type: round-robin-picker}]}}",
			"requests: 300, concurrency: 8, prompt: {characters: 1000..2000}")
		change(&s.Hops)
		tally := report.NewTally()
		if err := Run(s, tally, nil); err != nil {
			t.Fatal(err)
		}
		span, ok := tally.Summary().Span("queue")
		if !ok {
			t.Fatal("nobody queued")
		}
		return span
	}
	if q := queue(func(h *scenario.Hops) { *h = scenario.Hops{} }); q.P50 > 0 {
		t.Errorf("without hops p50 is %v", q.P50)
	}
	if q := queue(func(*scenario.Hops) {}); q.P50 < 0.001 || q.P50 > 0.008 {
		t.Errorf("with the default hops p50 is %v s, expected a part of a step", q.P50)
	}
}

// Nothing overtakes what went before on the same way, however long each takes;
// what takes no time is there at once; the same seed gives the same times.
func TestNothingOvertakes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dists := rapid.SliceOfN(
			rapid.SampledFrom([]string{"0", "1ms", "0..2ms", "lognormal(1ms, 3ms)", "empirical(0s*3, 5ms)"}), 1,
			3).Draw(t, "hops")
		seed := rapid.Uint64().Draw(t, "seed")
		leave := rapid.SliceOfN(rapid.Int64Range(0, 1e6), 1, 20).Draw(t, "leaving")
		play := func() (arrived []string) {
			var list []dist.Dist
			for _, text := range dists {
				d, err := dist.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, d)
			}
			w := &world{hops: hops{seed: seed}}
			by, on := newRoute(list...), w.hops.open("r", 0).up
			at := machine.Time(0)
			for i, after := range leave {
				at += machine.Time(after)
				w.queue.Push(at, machine.ClassTimer, event{then, func() {
					left, instant := w.now, len(by.varied) == 0 && by.fixed == 0
					w.pass(&on, &by, message{do: (*message).call, f: func() {
						if w.now < left || instant && w.now > left {
							t.Fatalf("it left at %v and arrived at %v", left, w.now)
						}
						arrived = append(arrived, fmt.Sprint(i, " ", w.now))
					}})
				}})
			}
			for w.queue.Len() > 0 {
				at, e := w.queue.Pop()
				w.now = at
				w.play(e)
			}
			return arrived
		}
		first := play()
		for i, a := range first {
			if !strings.HasPrefix(a, fmt.Sprint(i, " ")) {
				t.Fatalf("arrived %v", first)
			}
		}
		if len(first) != len(leave) || !slices.Equal(first, play()) {
			t.Fatalf("arrived %v", first)
		}
	})
}

// A page of metrics is made half a hop after it was asked for, and read another
// half later.
func TestScrapesTakeTime(t *testing.T) {
	t.Parallel()
	s := batching(t, scored)
	s.Hops.Scrape = dist.Fixed(30 * machine.Millisecond)
	w, err := newWorld(s, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.now = machine.Second
	w.queue = machine.Queue[event]{} // but for the schedule
	state := func() *picker.State { return &w.pools[0].pickers[0].m.Picker().Pool().View().States[0] }
	w.pools[0].pickers[0].scrape(w.pools[0].pickers[0].m.Target("default/"+state().Name), 0)
	until := func(made machine.Time) {
		for w.now < made {
			at, e := w.queue.Pop()
			w.now = at
			w.play(e)
		}
	}
	if until(machine.Second + 15*machine.Millisecond); w.now != machine.Second+15*machine.Millisecond {
		t.Errorf("the page was made at %v", w.now)
	}
	if until(machine.Second + 30*machine.Millisecond); w.now != machine.Second+30*machine.Millisecond ||
		state().UpdatedAt != w.now {
		t.Errorf("the page was read at %v, the metrics are of %v", w.now, state().UpdatedAt)
	}
}
