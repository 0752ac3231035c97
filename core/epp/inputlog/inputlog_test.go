package inputlog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// everything is a configuration with flow control, questions, both indexes,
// sessions by a cookie and by credentials, and all that else remembers.
const everything = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 2}}
- {type: token-producer, parameters: {modelName: m, vllm: {url: "http://renderer:8000"}}}
- type: endpoint-notification-source
- type: precise-prefix-cache-producer
  parameters: {tokenProcessorConfig: {blockSize: 4}, kvEventsConfig: {discoverPods: true}, speculativeIndexing: true}
- {type: approx-prefix-cache-producer}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
- {name: approximate, type: prefix-cache-scorer}
- {type: session-id-producer, parameters: {cookieName: sid}}
- {name: by-key, type: session-id-producer, parameters: {headerName: X-Api-Key}}
- {type: agent-identity, parameters: {additionalSessionHeaders: [X-My-Secret]}}
- {type: header-label-affinity-scorer, parameters: {headerName: x-my-secret, labelKey: tenant}}
- type: session-affinity-scorer
  parameters: {strategy: session_id, sessionIdConfig: {sources: [{header: authorization}, {attribute: SessionIDDataKey/session-id-producer}, {attribute: SessionIDDataKey/by-key}]}}
- {type: no-hit-lru-scorer}
- {type: active-request-scorer}
- {type: queue-scorer}
- {type: program-aware-fairness}
- {type: health-data-source, parameters: {interval: 30ms}}
- {type: metrics-data-source}
- {type: core-metrics-extractor}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: prefix-cache-scorer}, {pluginRef: approximate}, {pluginRef: session-affinity-scorer}, {pluginRef: no-hit-lru-scorer}, {pluginRef: active-request-scorer}, {pluginRef: queue-scorer}, {pluginRef: header-label-affinity-scorer}]
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
  defaultPriorityBand: {fairnessPolicyRef: program-aware-fairness}
`

// secret is in every header that may carry a credential.
const secret = "TopSecret1234567890"

// world drives a machine that is logged.
type world struct {
	m        *epp.Machine
	log      *inputlog.Log
	text     bytes.Buffer
	now      machine.Time
	fx       epp.Effects
	requests []*epp.Request
	over     map[*epp.Request]bool
	scrapes  []epp.Effect
}

func newWorld(t interface{ Fatal(...any) }, bodies bool) *world {
	cfg, err := config.Read("test", []byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	p, err := picker.New(cfg, plugins.Builtin(), picker.Options{AllowExperimental: true, Detail: true})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{over: map[*epp.Request]bool{}}
	if w.m, err = epp.New(epp.Config{Picker: p, Describe: true}); err != nil {
		t.Fatal(err)
	}
	text := everything
	w.log = inputlog.New(w.m,
		inputlog.Header{Picker: 1, Config: &text, Name: "test", AllowExperimental: true, Detail: true, Bodies: bodies},
		func(lines []byte) { w.text.Write(lines) })
	w.log.Start()
	return w
}

func (w *world) input(msg epp.Message) {
	w.m.Input(w.now, msg, &w.fx)
	for i := range w.fx.List {
		if e := &w.fx.List[i]; e.Kind == epp.Scrape {
			w.scrapes = append(w.scrapes, *e)
		}
	}
	w.fx.Reset()
}

// step makes of four numbers something that happens.
func (w *world) step(t interface{ Fatal(...any) }, what, a, b, c int) {
	var r *epp.Request
	if len(w.requests) > 0 {
		r = w.requests[a%len(w.requests)]
	}
	switch what {
	case 0, 1, 2:
		words := strings.Repeat(fmt.Sprintf("conversation %d, ", b%3), 40+c)
		head := header.Of(":method", "POST", ":path", "/v1/completions?n=1&api-key="+secret, "x-request-id",
			fmt.Sprintf("r%d", len(w.requests)), "x-llm-d-inference-objective", []string{"low", "", "high"}[a%3],
			"proxy-authorization", secret, "x-api-key", fmt.Sprint(secret, b%3), "x-my-secret",
			[]string{secret, "public", ""}[a%3], "referer", "https://x/?q=1&access_token="+secret)
		if b%2 > 0 {
			head = append(head, header.Header{Name: "x-gateway-inference-fairness-id", Value: "1"})
		}
		switch c % 3 {
		case 0:
			head = append(head, header.Header{Name: "authorization", Value: fmt.Sprint("Bearer ", secret, b%4)})
		case 1:
			head = append(head, header.Header{Name: "cookie",
				Value: fmt.Sprintf("other=%s; sid=%s%d", secret, secret, b%4)})
		}
		inner, err := w.m.Picker().NewRequest(head,
			fmt.Appendf(nil, `{"model":"m","prompt":%s}`,
				[]string{fmt.Sprintf("%q", words), `[1,2,3,4,5,6,7,8,9]`}[b%2]), true, uint64(len(w.requests)))
		if err != nil {
			t.Fatal(err)
		}
		r = &epp.Request{Request: inner}
		w.requests = append(w.requests, r)
		w.input(epp.Arrive{Request: r})
	case 3:
		if r != nil && r.Asking() {
			answer := picker.Answer{Plugin: r.Needs[0].Plugin, Key: r.Needs[0].Key,
				Value: fmt.Appendf(nil, `{"token_ids":[1,2,3,4,%d,6,7,8]}`, b)}
			if c%4 == 0 {
				answer = picker.Answer{Plugin: answer.Plugin, Key: answer.Key, Err: errors.New("nobody there")}
			}
			w.input(w.m.Answer(r, []picker.Answer{answer}))
		}
	case 4:
		if r != nil {
			w.input(epp.Leave{Request: r})
		}
	case 5, 6:
		if r == nil || w.over[r] {
			return
		}
		if r.Decision != nil && r.Err == nil {
			if r.Response == nil {
				r.Response = w.m.Picker().NewResponse(w.now, r.Decision,
					header.Of(":status", "200", "set-cookie", secret))
				w.input(epp.Headers{Request: r})
			}
			end := b%2 == 0
			r.Response.Read(w.now, []byte(`{"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`), end)
			w.input(epp.Piece{Request: r})
			if !end {
				return
			}
		}
		w.over[r] = true
		w.input(epp.Done{Request: r})
	case 7, 8:
		if len(w.scrapes) == 0 {
			return
		}
		e := w.scrapes[a%len(w.scrapes)]
		w.scrapes = append(w.scrapes[:a%len(w.scrapes)], w.scrapes[a%len(w.scrapes)+1:]...)
		x := epp.Scraped{Target: e.Target, Source: e.Source}
		page := fmt.Sprintf("# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting "+
			"%d\nvllm:kv_cache_usage_perc %v\n", b, []string{"NaN", "0.25", "+Inf", "1e-300"}[c%4])
		if x.Page, x.Err = metrics.Parse([]byte(page[c%2*48:]), w.m.Sources()[e.Source].Wants); c == 0 {
			x.Err = errors.New("failed")
		}
		w.input(x)
	case 9:
		var list []*picker.Endpoint
		for i := range 1 + a%4 {
			list = append(list, picker.NewEndpoint("default", fmt.Sprint("w", i+b%2), fmt.Sprintf("10.0.%d.%d", c%2, i),
				"8000", map[string]string{"zone": fmt.Sprint(c), "tenant": []string{"public", "other"}[i%2]}))
		}
		w.input(epp.Endpoints{List: list})
	case 10:
		w.input(epp.KVEvents{From: kv.Topic{Pod: fmt.Sprintf("10.0.0.%d:8000", a%4), Model: "m"},
			Events: []kv.Event{{Kind: kv.Stored, Hashes: []kv.EngineHash{kv.EngineHash(b + 1)},
				Tokens: []uint32{1, 2, 3, 4}, BlockTokens: 4, Medium: kv.MediumGPU, Group: kv.NoGroup}}})
	case 11:
		if c%2 == 0 {
			w.input(epp.KVLost{Pod: fmt.Sprintf("10.0.0.%d:8000", a%4)})
			return
		}
		s := objects.Selection{Priorities: []int{-1, 10}[:a%3]}
		s.Objects.Objectives = map[string]int{"low": -1, "high": 10}
		w.input(epp.Objects{Selection: s, KeepEndpoints: true})
	}
}

// draw plays a random story, with snapshots in it.
func (w *world) draw(t *rapid.T) {
	number := rapid.IntRange(0, 11)
	w.step(t, 9, 3, 0, 0)
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		w.now += machine.Time(rapid.IntRange(0, 40).Draw(t, "ms")) * machine.Millisecond
		w.step(t, number.Draw(t, "what"), number.Draw(t, "a"), number.Draw(t, "b"), number.Draw(t, "c"))
		if rapid.IntRange(0, 4).Draw(t, "saved") == 0 {
			w.log.Start()
		}
	}
	w.log.Start()
}

// Whatever enters a picker: played again it has the same effects, also from any
// snapshot on, and comes to the same state; asked about each decision by itself,
// the same configuration says the same; and no credential is in the log.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.Bool().Draw(t, "bodies"))
		w.draw(t)
		text := w.text.Bytes()
		if bytes.Contains(text, []byte(secret)) {
			i := bytes.Index(text, []byte(secret))
			t.Fatalf("a credential is written down: %s", text[max(0, i-300):i+50])
		}
		same := &inputlog.Other{Config: everything, Name: "the same"}
		var moves inputlog.Moves
		same.Look = func(r *epp.Request, own *picker.Decision) { moves.Look(r, own) }
		p := inputlog.Player{Registry: plugins.Builtin(), CheckStates: true, Others: []*inputlog.Other{same}}
		for line := range bytes.Lines(text) {
			if err := p.Line(bytes.TrimSpace(line)); err != nil {
				t.Fatalf("%v\n%.3000s", err, line)
			}
		}
		if p.First != nil || p.Skipped > 0 || p.Decisions == 0 && bytes.Contains(text, []byte(`"decided"`)) {
			t.Fatalf("%v %+v", p.First, p.Counts)
		}
		if moves.Moved+moves.Refused+moves.Admitted > 0 {
			t.Fatalf("asked about each decision: %+v %v", moves, moves.Reasons())
		}
	})
}

// Anyone may have written a log: a Player plays or refuses it, and never panics.
func FuzzPlayer(f *testing.F) {
	w := newWorld(f, false)
	for i := range 40 {
		w.now += 7 * machine.Millisecond
		w.step(f, i*7%12, i%5, i%3, i%4)
		if i%20 == 19 {
			w.log.Start()
		}
	}
	f.Add(w.text.Bytes())
	f.Add([]byte(`{"time":0.3,"request":"r","hop":"client","step":"finished","details":{"outcome":"completed",` +
		`"tokens":-27}}`))
	for line := range bytes.Lines(w.text.Bytes()) {
		if bytes.Contains(line, []byte(`"picker":1`)) && json.Valid(line) {
			f.Add(bytes.Join([][]byte{firstLines(w.text.Bytes()), line}, nil))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		other := &inputlog.Other{Config: everything, Name: "other"}
		p, again := inputlog.Player{Registry: plugins.Builtin(), Others: []*inputlog.Other{other}},
			inputlog.Player{Registry: plugins.Builtin()}
		var q inputlog.Requests
		for line := range bytes.Lines(text) {
			unread := q.Line(line)
			q.Event(line)
			err, same := p.Line(bytes.TrimSpace(line)), again.Line(bytes.TrimSpace(line))
			if (err == nil) != (same == nil) {
				t.Fatalf("%q: %v beside another configuration, %v alone", line, err, same)
			}
			if err != nil {
				return
			}
			if unread != nil && json.Valid(line) {
				t.Fatalf("%q is played, and cannot be read for its requests: %v", line, unread)
			}
		}
	})
}

// firstLines returns a log's header and snapshot.
func firstLines(text []byte) []byte {
	i := bytes.IndexByte(text, '\n') + 1
	return text[:i+bytes.IndexByte(text[i:], '\n')+1]
}
