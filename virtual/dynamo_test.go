package virtual

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/dynamo"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

// An endpoint picker with Dynamo's router that restarts has forgotten which blocks it
// sent to which server and what runs: prompts go to servers that do not cache them, and every request is served that
// it was not handling at that moment.
func TestDynamoRouterRestarts(t *testing.T) {
	play := func(restart bool) (cached int64, ends map[string]int) {
		s, err := scenario.Load("../examples/dynamo-plugin.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if restart {
			for at := 2 * time.Second; at < 20*time.Second; at += 2 * time.Second {
				s.Pools[0].Incidents = append(s.Pools[0].Incidents,
					scenario.Incident{At: at, What: scenario.RestartEPP})
			}
		}
		events := recorded(t, s)
		for _, e := range events {
			if e.Step == record.PrefillStarted {
				n, _ := e.Details.Get("cached_tokens").(int)
				cached += int64(n)
			}
		}
		return cached, outcomes(events)
	}
	cached, ends := play(false)
	if ends["completed"] != 600 || cached == 0 {
		t.Fatalf("without a restart %v, with %d cached tokens", ends, cached)
	}
	less, ends := play(true)
	if less > cached*9/10 {
		t.Errorf("with restarts %d cached tokens, without %d: want a tenth fewer at least", less, cached)
	}
	total := 0
	for outcome, n := range ends {
		if total += n; outcome != "completed" && outcome != "broken" && outcome != "unavailable" {
			t.Errorf("%d requests ended as %s", n, outcome)
		}
	}
	if total != 600 || ends["completed"] < 450 {
		t.Errorf("outcomes %v of 600 requests", ends)
	}
}

// A Dynamo frontend that restarts knows no worker until these push again: the picker gets no
// answer meanwhile, routes without it, and every request is served. Cached prompts are
// found less often.
func TestDynamoFrontendRestarts(t *testing.T) {
	for _, example := range []string{"sidecar", "callout"} {
		t.Run(example, func(t *testing.T) {
			play := func(restarts int, down time.Duration) (cached int64, failed int) {
				s, err := scenario.Load("../examples/dynamo-" + example + ".yaml")
				if err != nil {
					t.Fatal(err)
				}
				for i := range restarts {
					s.Pools[0].Incidents = append(s.Pools[0].Incidents,
						scenario.Incident{At: time.Duration(2*i+1)*time.Second + 400*time.Millisecond,
							What: scenario.RestartFrontend, For: down})
				}
				events := recorded(t, s)
				for _, e := range events {
					switch e.Step {
					case record.PrefillStarted:
						n, _ := e.Details.Get("cached_tokens").(int)
						cached += int64(n)
					case record.CallFailed:
						failed++
					}
				}
				if ends := outcomes(events); ends["completed"] != 600 {
					t.Errorf("with %d restarts outcomes are %v, want 600 completed", restarts, ends)
				}
				return cached, failed
			}
			cached, failed := play(0, 0)
			if cached == 0 || failed > 0 {
				t.Fatalf("without a restart %d cached tokens, %d calls failed", cached, failed)
			}
			for _, down := range []time.Duration{0, 1500 * time.Millisecond} {
				less, failed := play(9, down)
				if less > cached*95/100 || failed == 0 {
					t.Errorf("down for %s: %d cached tokens, %d without a restart; %d calls failed", down, less, cached,
						failed)
				}
			}
		})
	}
}

// What an external frontend's question and answer are on their way for, each request takes
// longer; past the scorer's timeout there is no answer.
func TestDynamoFrontendFarAway(t *testing.T) {
	for _, x := range []struct {
		away, picked time.Duration
		failed       int
	}{{time.Millisecond, time.Millisecond, 0}, {10 * time.Millisecond, 10 * time.Millisecond, 0},
		{time.Second, 500 * time.Millisecond, 20}} {
		s, err := scenario.Load("../examples/dynamo-callout.yaml")
		if err != nil {
			t.Fatal(err)
		}
		s.Workload.Requests, s.Pools[0].Dynamo.RoundTrip = 20, x.away
		events := recorded(t, s)
		arrived, failed := map[string]int64{}, 0
		for _, e := range events {
			switch {
			case e.Step == record.RequestReceived && e.Hop == record.EPP:
				arrived[e.Request] = int64(e.Time)
			case e.Step == record.EndpointPicked:
				if took := time.Duration(int64(e.Time) - arrived[e.Request]); took != x.picked {
					t.Errorf("%s: %s was picked for after %s, want %s", x.away, e.Request, took, x.picked)
				}
			case e.Step == record.CallFailed:
				failed++
			}
		}
		if failed != x.failed {
			t.Errorf("%s: %d calls failed, want %d", x.away, failed, x.failed)
		}
	}
}

// A graph behind the gateway routes by itself: its router finds prompts where they are cached,
// whatever frontend the picker takes, and a restart of the picker costs no cached prompt. While
// the router knows no worker requests are refused.
func TestDynamoGraph(t *testing.T) {
	play := func(what scenario.IncidentKind) (cached int64, ends map[string]int) {
		s, err := scenario.Load("../examples/dynamo-graph.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if what != "" {
			for i := range 9 {
				s.Pools[0].Incidents = append(s.Pools[0].Incidents,
					scenario.Incident{At: time.Duration(2*i+1)*time.Second + 400*time.Millisecond, What: what})
			}
		}
		events := recorded(t, s)
		for _, e := range events {
			if e.Step == record.PrefillStarted {
				n, _ := e.Details.Get("cached_tokens").(int)
				cached += int64(n)
			}
		}
		return cached, outcomes(events)
	}
	cached, ends := play("")
	if ends["completed"] != 600 || cached < 977400*50/100 {
		t.Errorf("outcomes %v, %d cached tokens; expected 600 completed and half of the tokens cached", ends, cached)
	}
	if after, ends := play(scenario.RestartEPP); after < cached*9/10 || ends["completed"]+ends["broken"]+
		ends["unavailable"] != 600 {
		t.Errorf("with restarts of the picker %d cached tokens, %v; without %d", after, ends, cached)
	}
	if after, ends := play(scenario.RestartFrontend); after > cached*9/10 || ends["unavailable"] == 0 ||
		ends["completed"]+ends["unavailable"] != 600 {
		t.Errorf("with restarts of the router %d cached tokens, %v; without %d", after, ends, cached)
	}
}

// The router in the picker chooses prefill workers, too: every prompt is computed where the
// headers say, by what is cached there, and those that decode share the load.
func TestDynamoPrefillByPicker(t *testing.T) {
	s, err := scenario.Load("../examples/dynamo-disagg.yaml")
	if err != nil {
		t.Fatal(err)
	}
	legs, cached, decodes := map[string]int{}, 0, map[string]int{}
	events := recorded(t, s)
	for _, e := range events {
		switch e.Step {
		case record.PrefillLegSent:
			legs[e.Endpoint]++
		case record.EndpointPicked:
			decodes[e.Endpoint]++
		case record.PrefillStarted:
			if n, _ := e.Details.Get("cached_tokens").(int); legs[e.Endpoint] > 0 {
				cached += n
			}
		}
	}
	least := func(m map[string]int) int { return slices.Min(slices.Collect(maps.Values(m))) }
	if ends := outcomes(events); ends["completed"] != 600 || len(legs) != 2 || least(legs) < 200 || len(decodes) != 2 ||
		least(decodes) < 250 {
		t.Errorf("%v; prompts computed at %v, decoded at %v; expected 600, each at both of two", ends, legs, decodes)
	}
	if cached < 977400*60/100 {
		t.Errorf("%d tokens of 977,400 were cached where they were computed; expected three fifths: there are 100 "+
			"beginnings", cached)
	}
}

// Workers push when the number of their requests changes, without waiting for the next heartbeat, which is an hour away
// here. A dead one is forgotten after three heartbeats without a push, and returns with its first.
func TestDynamoWorkersPush(t *testing.T) {
	play := func(change func(*scenario.Pool), look func(now time.Duration, workers []dynamo.Worker)) {
		s, err := scenario.Load("../examples/dynamo-service.yaml")
		if err != nil {
			t.Fatal(err)
		}
		s.Workload.Requests = 300
		change(&s.Pools[0])
		var w *world
		if w, err = newWorld(s, record.Func(func(e record.Event) {
			look(time.Duration(e.Time), w.pools[0].frontend.m.(*dynamo.Router).Workers())
		}), Options{}); err != nil {
			t.Fatal(err)
		}
		if err := w.run(nil); err != nil {
			t.Fatal(err)
		}
	}
	most, least := 0, 1000
	play(func(p *scenario.Pool) { p.Dynamo.PushInterval = time.Hour },
		func(now time.Duration, workers []dynamo.Worker) {
			sum := 0
			for _, w := range workers {
				sum += w.Requests
			}
			if most = max(most, sum); now > 2*time.Second && now < 9*time.Second {
				least = min(least, sum)
			}
		})
	if most < 8 || most > 60 || least == 0 {
		t.Errorf("the router was told of %d to %d requests in hand; about ten are at any time", least, most)
	}
	gone, back := time.Duration(0), time.Duration(0)
	play(func(p *scenario.Pool) {
		p.Incidents = []scenario.Incident{
			{At: 2500 * time.Millisecond, What: scenario.Crash, Server: 1, For: 4 * time.Second}}
	}, func(now time.Duration, workers []dynamo.Worker) {
		switch {
		case len(workers) == 3 && gone == 0:
			gone = now
		case len(workers) == 4 && gone > 0 && back == 0:
			back = now
		}
	})
	if gone < 5*time.Second || gone > 5600*time.Millisecond || back < 6500*time.Millisecond ||
		back > 7200*time.Millisecond {
		t.Errorf("the worker that died after 2.5 s was forgotten after %s and known again after %s; expected three "+
			"intervals after its last push, and the first push after its 4 s", gone, back)
	}
}

// Behind a plain Service a graph serves as behind a picker: Envoy takes its frontends by turns,
// and its router finds prompts where they are. No picker is on the way. A frontend whose pod died
// gets no request once Envoy's health check has seen it.
func TestDynamoService(t *testing.T) {
	play := func(crash bool) (cached int, turns map[string]int, ends map[string]int, events []record.Event) {
		s, err := scenario.Load("../examples/dynamo-service.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if crash {
			s.Pools[0].Incidents = []scenario.Incident{{At: 5 * time.Second, What: scenario.Crash, Server: 1}}
		}
		turns = map[string]int{}
		events = recorded(t, s)
		for _, e := range events {
			switch {
			case e.Hop == record.EPP:
				t.Fatalf("a picker says %s", e.Step)
			case e.Hop == record.Sidecar && e.Step == record.RequestReceived:
				turns[e.Endpoint]++
			case e.Step == record.PrefillStarted:
				n, _ := e.Details.Get("cached_tokens").(int)
				cached += n
			}
		}
		return cached, turns, outcomes(events), events
	}
	cached, turns, ends, _ := play(false)
	if ends["completed"] != 600 || cached < 977400*50/100 || len(turns) != 4 {
		t.Errorf("outcomes %v, %d cached tokens, frontends %v; expected 600 completed, half of the tokens cached, "+
			"four frontends", ends, cached, turns)
	}
	for at, n := range turns {
		if n != 150 {
			t.Errorf("%s got %d requests, expected a quarter", at, n)
		}
	}
	_, _, ends, events := play(true)
	late := 0
	for _, e := range events {
		if e.Hop == record.Client && e.Step == record.Finished && time.Duration(e.Time) > 9*time.Second &&
			e.Details.Get("outcome") != "completed" {
			late++
		}
	}
	if late > 0 || ends["completed"] == 600 || ends["completed"] < 540 {
		t.Errorf("outcomes %v, %d lost long after the crash; expected some lost at it, and all others served", ends,
			late)
	}
}

// Workers that only prefill compute long prompts that are new; those that are nearly all there
// stay with the worker that decodes.
func TestDynamoPrefillWorkers(t *testing.T) {
	s, err := scenario.Load("../examples/dynamo-prefill.yaml")
	if err != nil {
		t.Fatal(err)
	}
	legs, stay := 0, 0
	events := recorded(t, s)
	for _, e := range events {
		switch {
		case e.Step == record.PrefillLegSent:
			legs++
		case e.Step == record.PrefillDecided && e.Details.Get("decision") == "local":
			stay++
		}
	}
	if ends := outcomes(events); ends["completed"] != 600 || legs < 100 || stay < 100 || legs+stay != 600 {
		t.Errorf("%v; %d prompts computed elsewhere and %d where they are decoded, expected 600 together, 100 of "+
			"each at least", ends, legs, stay)
	}
}
