package contract

import (
	"errors"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// everything is a configuration with flow control, remote questions, an index and several data sources.
const everything = `
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 2}}
- {type: token-producer, parameters: {modelName: m, vllm: {url: "http://renderer:8000"}}}
- type: endpoint-notification-source
- type: precise-prefix-cache-producer
  parameters: {tokenProcessorConfig: {blockSize: 4}, kvEventsConfig: {discoverPods: true}, speculativeIndexing: true}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
- {type: queue-scorer}
- {type: health-data-source, parameters: {interval: 30ms}}
- {type: metrics-data-source}
- {type: core-metrics-extractor}
dataLayer:
  sources:
  - {pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}
  - {pluginRef: health-data-source}
  - {pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  enableEviction: true
  defaultRequestTTL: 150ms
  maxRequests: 6
`

func newPicker(t *rapid.T, text string, c stream.Config) *epp.Machine {
	cfg, err := config.Read("epp.yaml", []byte("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := picker.New(cfg, plugins.Builtin(), picker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := epp.New(epp.Config{Picker: p, Stream: c})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func pickers(t *rapid.T) Kind[move, *epp.Effects] {
	number := rapid.IntRange(0, 11)
	return Kind[move, *epp.Effects]{
		Make: func() Instance[move, *epp.Effects] {
			x := &mover{t: t, m: newPicker(t, everything, stream.Config{}), over: map[*epp.Request]bool{}}
			return Instance[move, *epp.Effects]{Machine: x, Is: x.m, Effects: new(epp.Effects), Say: x.say}
		},
		Message: func(t *rapid.T, _ machine.Time) move {
			return move{number.Draw(t, "what"), number.Draw(t, "a"), number.Draw(t, "b"), number.Draw(t, "c")}
		},
		Spans: []machine.Time{machine.Millisecond, 10 * machine.Millisecond, 25 * machine.Millisecond},
		Rest:  machine.Second,
	}
}

// move is a message in numbers, because a real message belongs to one picker.
type move struct{ what, a, b, c int }

// mover is a picker whose messages are moves.
type mover struct {
	t        *rapid.T
	m        *epp.Machine
	now      machine.Time
	requests []*epp.Request
	over     map[*epp.Request]bool
	scrapes  []epp.Effect
}

func (x *mover) Next() (machine.Time, bool) { return x.m.Next() }

func (x *mover) Advance(now machine.Time, fx *epp.Effects) {
	before := fx.Len()
	x.now = max(x.now, now)
	x.m.Advance(now, fx)
	x.look(fx.List[before:])
}

func (x *mover) Input(now machine.Time, m move, fx *epp.Effects) {
	x.Advance(now, fx) // the possible messages depend on earlier effects
	before := fx.Len()
	if m.what >= 4 && m.what <= 5 {
		x.end(now, m, fx)
	} else if msg := x.message(m); msg != nil {
		x.m.Input(now, msg, fx)
	}
	x.look(fx.List[before:])
}

func (x *mover) look(list []epp.Effect) {
	for _, e := range list {
		if e.Kind == epp.Scrape {
			x.scrapes = append(x.scrapes, e)
		}
	}
}

func (x *mover) say(fx *epp.Effects) (out []Said) {
	for i := range fx.List {
		e := &fx.List[i]
		text := fmt.Sprintf("kind %d source %d count %d flow %d", e.Kind, e.Source, e.Count, e.Flow.Kind)
		if e.Request != nil {
			text += fmt.Sprintf(" request %d %v", slices.Index(x.requests, e.Request), e.Request.Err)
		}
		if e.Target != nil {
			text += " " + e.Target.ID()
		}
		out = append(out, Said{e.At, text})
	}
	return out
}

func (x *mover) request(n int) *epp.Request {
	if len(x.requests) == 0 {
		return nil
	}
	return x.requests[n%len(x.requests)]
}

// end returns the messages of a request's response and of its end.
func (x *mover) end(now machine.Time, m move, fx *epp.Effects) {
	r := x.request(m.a)
	if r == nil || x.over[r] {
		return
	}
	x.over[r] = true
	if r.Decision != nil && r.Err == nil && m.b%2 == 0 {
		r.Response = x.m.Picker().NewResponse(x.now, r.Decision, header.Of(":status", "200"))
		x.m.Input(now, epp.Headers{Request: r}, fx)
		r.Response.Read(x.now, []byte("{}"), true)
		x.m.Input(now, epp.Piece{Request: r}, fx)
	}
	x.m.Input(now, epp.Done{Request: r}, fx)
}

func (x *mover) message(m move) epp.Message {
	r := x.request(m.a)
	switch m.what {
	case 0, 1:
		objective := []string{"low", "", "high"}[m.a%3]
		inner, err := x.m.Picker().NewRequest(
			header.Of(":method", "POST", ":path", "/v1/completions", "x-llm-d-inference-objective", objective),
			fmt.Appendf(nil, `{"model":"m","prompt":%s}`, []string{`"text"`, `[1,2,3,4,5]`}[m.b%2]), true,
			uint64(len(x.requests)))
		if err != nil {
			x.t.Fatal(err)
		}
		r = &epp.Request{Request: inner}
		x.requests = append(x.requests, r)
		return epp.Arrive{Request: r}
	case 2:
		if r != nil && r.Asking() {
			return x.m.Answer(r, []picker.Answer{
				{Plugin: r.Needs[0].Plugin, Key: r.Needs[0].Key,
					Value: fmt.Appendf(nil, `{"token_ids":[1,2,3,4,%d]}`, m.b)}})
		}
	case 3:
		if r != nil {
			return epp.Leave{Request: r}
		}
	case 6, 7:
		if len(x.scrapes) == 0 {
			return nil
		}
		i := m.a % len(x.scrapes)
		e := x.scrapes[i]
		x.scrapes = slices.Delete(x.scrapes, i, i+1)
		s := epp.Scraped{Target: e.Target, Source: e.Source}
		if s.Page, s.Err = metrics.Parse(
			fmt.Appendf(nil, "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting %d\n", m.b),
			x.m.Sources()[e.Source].Wants); m.c%4 == 0 {
			s.Err = errors.New("failed")
		}
		return s
	case 8:
		var list []*picker.Endpoint
		for i := range m.a % 4 {
			list = append(list, picker.NewEndpoint("default", fmt.Sprint("w", i+m.b%2),
				fmt.Sprintf("10.0.%d.%d", m.c%2, i), "8000", nil))
		}
		return epp.Endpoints{List: list}
	case 9:
		return epp.KVEvents{From: kv.Topic{Pod: fmt.Sprintf("10.0.0.%d:8000", m.a%4), Model: "m"},
			Events: []kv.Event{{Kind: kv.Stored, Hashes: []kv.EngineHash{kv.EngineHash(m.b)},
				Tokens: []uint32{1, 2, 3, 4}, BlockTokens: 4, Medium: kv.MediumGPU, Group: kv.NoGroup}}}
	case 10:
		return epp.KVLost{Pod: fmt.Sprintf("10.0.0.%d:8000", m.a%4)}
	case 11:
		s := objects.Selection{Priorities: []int{-1, 10}[:m.a%3]}
		s.Objects.Objectives = map[string]int{"low": -1, "high": 10}
		return epp.Objects{Selection: s, KeepEndpoints: true}
	}
	return nil
}

// pickerServices models the time that a picker takes.
func pickerServices(t *rapid.T) Kind[*epp.Request, *machine.Effects[epp.Attended]] {
	takes, err := dist.Parse(rapid.SampledFrom([]string{"2ms", "1ms..9ms", "lognormal(3ms, 2ms)"}).Draw(t, "takes"))
	if err != nil {
		panic(err)
	}
	c := epp.ServiceConfig{Takes: takes, Workers: rapid.IntRange(1, 3).Draw(t, "workers"), Seed: 7}
	return Kind[*epp.Request, *machine.Effects[epp.Attended]]{
		Make: func() Instance[*epp.Request, *machine.Effects[epp.Attended]] {
			s := epp.NewService(c)
			return Instance[*epp.Request, *machine.Effects[epp.Attended]]{Machine: s,
				Effects: new(machine.Effects[epp.Attended]),
				Say: func(fx *machine.Effects[epp.Attended]) (out []Said) {
					for _, e := range fx.List {
						out = append(out, Said{e.At, e.Request.ID})
					}
					return out
				},
				State: func() string { at, ok := s.Next(); return fmt.Sprint(at, ok) }}
		},
		Message: func(t *rapid.T, _ machine.Time) *epp.Request {
			return &epp.Request{Request: &picker.Request{ID: fmt.Sprint(rapid.IntRange(1, 1000).Draw(t, "id"))}}
		},
		Spans: []machine.Time{0, machine.Millisecond, 5 * machine.Millisecond},
	}
}
