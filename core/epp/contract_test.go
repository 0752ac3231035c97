package epp_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/metrics"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
	"github.com/windtunnel/windtunnel/core/picker/objects"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
)

// everything is a configuration with flow control, questions, an index and
// several sources.
const everything = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 2}}
- {type: token-producer, parameters: {modelName: m, vllm: {url: "http://renderer:8000"}}}
- type: precise-prefix-cache-producer
  parameters: {tokenProcessorConfig: {blockSize: 4}, kvEventsConfig: {discoverPods: true}, speculativeIndexing: true}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
- {type: queue-scorer}
- {type: health-data-source, parameters: {interval: 30ms}}
- {type: metrics-data-source}
- {type: core-metrics-extractor}
dataLayer:
  sources:
  - {pluginRef: health-data-source}
  - {pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  enableEviction: true
  defaultRequestTTL: 150ms
  maxRequests: 6
`

// mover drives a machine by numbers alone, so that two of them get the same
// messages if they say the same.
type mover struct {
	t        *rapid.T
	m        *epp.Machine
	now      machine.Time
	fx       epp.Effects
	log      []string
	last     machine.Time // nothing may come from before
	requests []*epp.Request
	over     map[*epp.Request]bool
	scrapes  []epp.Effect
}

func newMover(t *rapid.T) *mover {
	cfg, err := config.Read("epp.yaml", []byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	p, err := picker.New(cfg, plugins.Builtin(), picker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := epp.New(epp.Config{Picker: p})
	if err != nil {
		t.Fatal(err)
	}
	return &mover{t: t, m: m, over: map[*epp.Request]bool{}}
}

func (v *mover) advance(now machine.Time) {
	v.m.Advance(now, &v.fx)
	v.read(now)
}

func (v *mover) input(msg epp.Message) {
	v.m.Input(v.now, msg, &v.fx)
	v.read(v.now)
}

// read notes the effects, which must come in the order of their times, and all
// that are due.
func (v *mover) read(now machine.Time) {
	for i := range v.fx.List {
		e := &v.fx.List[i]
		if e.At < v.last || e.At > now {
			v.t.Fatalf("effect %d at %v, after %v, when it was %v", e.Kind, e.At, v.last, now)
		}
		v.last = e.At
		text := fmt.Sprintf("%v kind %d source %d count %d flow %d", e.At, e.Kind, e.Source, e.Count, e.Flow.Kind)
		if e.Request != nil {
			text += fmt.Sprintf(" request %d %v", slices.Index(v.requests, e.Request), e.Request.Err)
		}
		if e.Target != nil {
			text += " " + e.Target.ID()
		}
		if e.Kind == epp.Scrape {
			v.scrapes = append(v.scrapes, *e)
		}
		v.log = append(v.log, text)
	}
	v.fx.Reset()
	v.last = now
	if at, ok := v.m.Next(); ok && at <= now {
		v.t.Fatalf("it is %v, and the machine wants to be woken at %v", now, at)
	}
}

// move makes of four numbers a message.
func (v *mover) move(what, a, b, c int) {
	if what >= 2 && what <= 7 { // it depends on what has been said
		v.advance(v.now)
	}
	var r *epp.Request
	if len(v.requests) > 0 {
		r = v.requests[a%len(v.requests)]
	}
	switch what {
	case 0, 1:
		objective := []string{"low", "", "high"}[a%3]
		inner, err := v.m.Picker().NewRequest(header.Of(":method", "POST", ":path", "/v1/completions", "x-llm-d-inference-objective", objective),
			fmt.Appendf(nil, `{"model":"m","prompt":%s}`, []string{`"text"`, `[1,2,3,4,5]`}[b%2]), true, uint64(len(v.requests)))
		if err != nil {
			v.t.Fatal(err)
		}
		r = &epp.Request{Request: inner}
		v.requests = append(v.requests, r)
		v.input(epp.Arrive{Request: r})
	case 2:
		if r != nil && r.Asking() {
			v.input(v.m.Answer(r, []picker.Answer{{Plugin: r.Needs[0].Plugin, Key: r.Needs[0].Key, Value: fmt.Appendf(nil, `{"token_ids":[1,2,3,4,%d]}`, b)}}))
		}
	case 3:
		if r != nil {
			v.input(epp.Leave{Request: r})
		}
	case 4, 5:
		if r == nil || v.over[r] {
			return
		}
		if r.Decision != nil && r.Err == nil && b%2 == 0 {
			r.Response = v.m.Picker().NewResponse(v.now, r.Decision, header.Of(":status", "200"))
			v.input(epp.Headers{Request: r})
			r.Response.Read(v.now, []byte("{}"), true)
			v.input(epp.Piece{Request: r})
		}
		v.over[r] = true
		v.input(epp.Done{Request: r})
	case 6, 7:
		if len(v.scrapes) == 0 {
			return
		}
		i := a % len(v.scrapes)
		e := v.scrapes[i]
		v.scrapes = slices.Delete(v.scrapes, i, i+1)
		x := epp.Scraped{Target: e.Target, Source: e.Source}
		if x.Page, x.Err = metrics.Parse(fmt.Appendf(nil, "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting %d\n", b), v.m.Sources()[e.Source].Wants); c%4 == 0 {
			x.Err = errors.New("failed")
		}
		v.input(x)
	case 8:
		var list []*picker.Endpoint
		for i := range a % 4 {
			list = append(list, picker.NewEndpoint("default", fmt.Sprint("w", i+b%2), fmt.Sprintf("10.0.%d.%d", c%2, i), "8000", nil))
		}
		v.input(epp.Endpoints{List: list})
	case 9:
		v.input(epp.KVEvents{From: kv.Topic{Pod: fmt.Sprintf("10.0.0.%d:8000", a%4), Model: "m"},
			Events: []kv.Event{{Kind: kv.Stored, Hashes: []kv.EngineHash{kv.EngineHash(b)}, Tokens: []uint32{1, 2, 3, 4}, BlockTokens: 4, Medium: kv.MediumGPU, Group: kv.NoGroup}}})
	case 10:
		v.input(epp.KVLost{Pod: fmt.Sprintf("10.0.0.%d:8000", a%4)})
	case 11:
		s := objects.Selection{Priorities: []int{-1, 10}[:a%3]}
		s.Objects.Objectives = map[string]int{"low": -1, "high": 10}
		v.input(epp.Objects{Selection: s, KeepEndpoints: true})
	}
}

// What the machine says depends on what it is told and when, and not on how
// often it is woken; it says all that is due, in the order of time.
func TestContract(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plain, woken := newMover(t), newMover(t)
		number := rapid.IntRange(0, 11)
		for range rapid.IntRange(1, 60).Draw(t, "messages") {
			now := plain.now + machine.Time(rapid.IntRange(0, 40).Draw(t, "ms"))*machine.Millisecond
			for range rapid.IntRange(0, 3).Draw(t, "wakes") {
				woken.now += machine.Time(rapid.Int64Range(0, int64(now-woken.now)).Draw(t, "wait"))
				woken.advance(woken.now)
			}
			what, a, b, c := number.Draw(t, "what"), number.Draw(t, "a"), number.Draw(t, "b"), number.Draw(t, "c")
			for _, v := range []*mover{plain, woken} {
				v.now = now
				v.move(what, a, b, c)
			}
		}
		for _, v := range []*mover{plain, woken} {
			v.advance(plain.now + machine.Second)
		}
		for i := range min(len(plain.log), len(woken.log)) {
			if plain.log[i] != woken.log[i] {
				t.Fatalf("effect %d: %s\nwith more wakes: %s", i, plain.log[i], woken.log[i])
			}
		}
		if len(plain.log) != len(woken.log) {
			t.Fatalf("%d effects, with more wakes %d", len(plain.log), len(woken.log))
		}
	})
}
