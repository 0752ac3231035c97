package epp

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
	"github.com/windtunnel/windtunnel/core/stream"
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

func picking(t *testing.T, text string, endpoints int) *Picking {
	t.Helper()
	cfg, err := config.Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := picker.New(cfg, plugins.Builtin(), picker.Options{Detail: true})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	k, err := NewPicking(PickingOptions{Picker: p, Now: func() machine.Time { return machine.Time(time.Since(began)) }, Errors: stream.EPPErrors})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	var list []*picker.Endpoint
	for i := range endpoints {
		list = append(list, picker.NewEndpoint("default", fmt.Sprintf("w%d", i), fmt.Sprintf("127.0.0.%d", i+1), "8000", nil))
	}
	k.With(func(p *picker.Picker, _ machine.Time) { p.Pool().Set(list) })
	return k
}

func chat(id int) *Request {
	return &Request{ID: fmt.Sprint(id), Body: []byte(`{"model":"m","messages":[{"role":"user","content":"hello"}]}`),
		Head: header.Of(":method", "POST", ":path", "/v1/chat/completions", "x-request-id", fmt.Sprint(id))}
}

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
			d, x := k.Decide(ctx, chat(i%50))
			if x == nil {
				if ctx.Err() == nil {
					t.Errorf("request %d: %s", i, d.Answer.Body)
				}
				return
			}
			x.ResponseHeaders(header.Of(":status", "200"))
			x.ResponseBody([]byte(`{}`), true)
			x.End(stream.PassedThrough)
			x.End(stream.Failed) // the second time means nothing
		})
	}
	wg.Wait()
	k.With(func(p *picker.Picker, _ machine.Time) {
		f := p.Plugin("inflight-load-producer").(interface {
			Load(slot int) (int64, int64)
		})
		for i, s := range p.Pool().View().States {
			if r, n := f.Load(s.Slot()); r != 0 || n != 0 {
				t.Errorf("endpoint %d is still charged %d requests, %d tokens", i, r, n)
			}
		}
	})
	if n := len(k.waiting); n != 0 {
		t.Errorf("%d requests are still waiting", n)
	}
}

// A picker that lost its state (a restart, another replica) is slower, never
// wrong: the request is served, only without its cached prefix.
func TestLostStateIsOnlySlower(t *testing.T) {
	text := "plugins: [{type: prefix-cache-scorer}]"
	for range 2 { // two replicas, each with its own approximate state
		k := picking(t, text, 2)
		for i := range 3 {
			d, x := k.Decide(context.Background(), chat(i))
			if x == nil || d.Endpoint == "" {
				t.Fatalf("not served: %+v", d)
			}
			x.End(stream.PassedThrough)
		}
	}
}

// An alarm may ring while it is being set to a later time. It must not take
// that time for now: everybody in the queue would be too late.
func TestAnAlarmThatRangTooEarly(t *testing.T) {
	k := picking(t, crowded, 1)
	var held []Exchange
	for i := range 2 {
		_, x := k.Decide(context.Background(), chat(i))
		held = append(held, x)
	}
	answered := make(chan string, 1)
	go func() {
		d, x := k.Decide(context.Background(), chat(2))
		if x == nil {
			answered <- string(d.Answer.Body)
			return
		}
		x.End(stream.PassedThrough)
		answered <- d.Endpoint
	}()
	for queued := false; !queued; time.Sleep(time.Millisecond) {
		k.mu.Lock()
		queued = len(k.waiting) == 3
		k.mu.Unlock()
	}
	for range 1000 {
		k.alarm()
	}
	for _, x := range held {
		x.End(stream.PassedThrough)
	}
	if got := <-answered; got != "127.0.0.1:8000" {
		t.Errorf("the one that waited got %q", got)
	}
}

// destination-endpoint-served-verifier hands on what Envoy says of who served.
func TestServedVerifierTellsWhatEnvoySaid(t *testing.T) {
	k := picking(t, "plugins:\n- {type: destination-endpoint-served-verifier}\n- {type: queue-scorer}\nschedulingProfiles:\n- {name: default, plugins: [{pluginRef: queue-scorer}]}\n", 2)
	lb := func(fields map[string]any) Metadata {
		s, err := structpb.NewStruct(fields)
		if err != nil {
			t.Fatal(err)
		}
		return Metadata{picker.NamespaceLB: s}
	}
	for want, m := range map[string]Metadata{
		"10.0.0.9:8000":                                      lb(map[string]any{picker.KeyServed: "10.0.0.9:8000"}),
		"fail: missing envoy lb metadata":                    nil,
		"fail: missing destination endpoint served metadata": lb(map[string]any{picker.KeyServed: 5}),
	} {
		_, x := k.Decide(context.Background(), chat(1))
		x.(servedReader).ResponseMetadata(m)
		set := x.ResponseHeaders(header.Of(":status", "200", "x-conformance-test-served-endpoint", "spoofed"))
		x.End(stream.PassedThrough)
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
