package epp

import (
	"context"
	"sync"
	"testing"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

const crowded = `
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 2}}
- {type: active-request-scorer}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: active-request-scorer}]}
flowControl: {saturationDetector: {pluginRef: concurrency-detector}, defaultRequestTTL: 60s}
`

// However many clients press in at once, leave, and come back: everyone is
// served or gone, and nothing stays charged.
func TestCrowdLeavesNothingBehind(t *testing.T) {
	k := picking(t, crowded, 3)
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if i%7 == 0 {
				time.AfterFunc(time.Duration(i)*time.Microsecond, cancel)
			}
			x := k.testAsk(ctx, chat(i%50), hello)
			if x.answer != nil {
				if ctx.Err() == nil {
					t.Errorf("request %d: %s", i, x.answer.Body)
				}
				return
			}
			x.respond(header.Of(":status", "200"), `{}`)
			x.leave() // which means nothing any more
		})
	}
	wg.Wait()
	k.With(func(m *core.Machine, _ machine.Time) {
		f := m.Picker().Plugin("inflight-load-producer").(interface {
			Load(slot int) (int64, int64)
		})
		for i, s := range m.Picker().Pool().View().States {
			if r, n := f.Load(s.Slot()); r != 0 || n != 0 {
				t.Errorf("endpoint %d is still charged %d requests, %d tokens", i, r, n)
			}
		}
		if n := m.InFlight(); n != 0 {
			t.Errorf("%d requests are still waiting", n)
		}
	})
}

// A picker that lost its state (a restart, another replica) is slower, never
// wrong: the request is served, only without its cached prefix.
func TestLostStateIsOnlySlower(t *testing.T) {
	text := "plugins: [{type: prefix-cache-scorer}]"
	for range 2 { // two replicas, each with its own approximate state
		k := picking(t, text, 2)
		for i := range 3 {
			x := k.testAsk(context.Background(), chat(i), hello)
			if x.endpoint == "" {
				t.Fatalf("not served: %+v", x.answer)
			}
			x.leave()
		}
	}
}

// A timer may ring while it is being set to a later time. That must not be taken
// for that time: everybody in the queue would be too late.
func TestATimerThatRangTooEarly(t *testing.T) {
	k := picking(t, crowded, 1)
	var held []*asked
	for i := range 2 {
		held = append(held, k.testAsk(context.Background(), chat(i), hello))
	}
	answered := make(chan string, 1)
	go func() {
		x := k.testAsk(context.Background(), chat(2), hello)
		if x.answer != nil {
			answered <- string(x.answer.Body)
			return
		}
		x.leave()
		answered <- x.endpoint
	}()
	for queued := false; !queued; time.Sleep(time.Millisecond) {
		k.With(func(m *core.Machine, _ machine.Time) { queued = m.InFlight() == 3 })
	}
	for range 1000 {
		k.With(func(*core.Machine, machine.Time) {})
	}
	for _, x := range held {
		x.leave()
	}
	if got := <-answered; got != "127.0.0.1:8000" {
		t.Errorf("the one that waited got %q", got)
	}
}

// destination-endpoint-served-verifier hands on what Envoy says of who served.
func TestServedVerifierTellsWhatEnvoySaid(t *testing.T) {
	k := picking(t, "plugins:\n- {type: destination-endpoint-served-verifier}\n- {type: "+
		"queue-scorer}\nschedulingProfiles:\n- {name: default, plugins: [{pluginRef: queue-scorer}]}\n", 2)
	for want, m := range map[string]picker.Served{
		"10.0.0.9:8000":                                      {Given: true, Known: true, Endpoint: "10.0.0.9:8000"},
		"fail: missing envoy lb metadata":                    {},
		"fail: missing destination endpoint served metadata": {Given: true},
	} {
		x := k.testAsk(context.Background(), chat(1), hello)
		x.s.Served(m)
		set := x.respond(header.Of(":status", "200", "x-conformance-test-served-endpoint", "spoofed"), "")
		x.leave()
		var got []string
		for _, h := range set {
			if h.Name == "x-conformance-test-served-endpoint" {
				got = append(got, h.Value)
			}
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
