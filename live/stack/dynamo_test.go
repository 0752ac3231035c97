package stack

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/epp/dynamo"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/freeport"
	"github.com/windtunnel/windtunnel/scenario"
)

// byFrontend routes by what a Dynamo frontend answers.
const byFrontend = `
plugins:
- {type: dynamo-frontend-scorer, parameters: {timeout: 10s}}
- {type: max-score-picker}
`

// The Dynamo frontend names the worker. While it is down requests are served without it, and once it is back and
// workers have pushed, it is used again.
func TestDynamoFrontendLost(t *testing.T) {
	t.Parallel()
	for _, where := range []scenario.DynamoFrontend{scenario.SidecarFrontend, scenario.ExternalFrontend} {
		t.Run(string(where), func(t *testing.T) {
			t.Parallel()
			r := start(t, quick(func(s *scenario.Scenario) {
				p := &s.Pools[0]
				p.EPP.Config.Text = []byte(byFrontend)
				// a shorter one, and a busy machine is late enough for workers to count as gone
				p.Dynamo.Frontend, p.Dynamo.PushInterval = where, 3*time.Second
			}), func(o *Options) { o.Ports.Frontend = freeport.Row(t, 1) })
			failed := func(what string, want bool) {
				t.Helper()

				before := r.rec.count(record.EPP, record.CallFailed)
				if a := r.post("/v1/chat/completions", chat); a.err != nil || a.status != 200 {
					t.Fatalf("%s a request was lost: %d %v %.300q", what, a.status, a.err, a.body)
				}
				if n := r.rec.count(record.EPP, record.CallFailed) - before; n > 0 != want {
					t.Errorf("%s %d calls failed", what, n)
				}
			}
			failed("at first", false)
			x := planned(t, r.Pool, scenario.Incident{What: scenario.RestartFrontend, For: time.Second})
			if err := r.happen(x); err != nil {
				t.Fatal(err)
			}
			failed("while it is gone", true)
			if err := r.recover(x); err != nil {
				t.Fatal(err)
			}
			r.until("all workers have pushed again",
				func() bool { return r.frontend.Workers() == len(r.Fleet.Servers()) })
			failed("once it is back", false)
			r.until("it has heard that all requests are over", func() bool { return r.frontend.Running() == 0 })
			x.For = 0
			if err := r.happen(x); err != nil {
				t.Fatal(err)
			}
			r.until("all workers have pushed again",
				func() bool { return r.frontend.Workers() == len(r.Fleet.Servers()) })
			failed("after another restart", false)
		})
	}
}

// Workers push when the number of their requests changes, not only with the next heartbeat, which is an hour away.
func TestDynamoWorkersPush(t *testing.T) {
	t.Parallel()
	r := start(t, quick(func(s *scenario.Scenario) {
		p := &s.Pools[0]
		p.Flow, p.Sidecar, p.EPP.Replicas = scenario.Plain, scenario.DynamoSidecar, 0
		p.Dynamo.Frontend, p.Dynamo.PushInterval = scenario.GraphFrontend, time.Hour
		p.ModelServer.Prefill = dist.Fixed(3600e9)
	}), nil)
	inHand := func() (n int) {
		for _, w := range r.frontend.Known() {
			n += w.Requests
		}
		return n
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	go do(r.request(ctx, http.MethodPost, chatPath, chat))
	r.until("the worker has pushed that it has a request", func() bool { return inHand() == 1 })
	leave()
	r.until("the worker has pushed that it has none", func() bool { return inHand() == 0 })
}

// A killed worker no longer pushes: after three heartbeats the router forgets it and sends it no request. Once it is
// back it announces itself.
func TestDynamoWorkerKilled(t *testing.T) {
	t.Parallel()
	r := start(t, quick(func(s *scenario.Scenario) {
		p := &s.Pools[0]
		p.Flow, p.Sidecar, p.EPP.Replicas = scenario.Plain, scenario.DynamoSidecar, 0
		p.Dynamo.Frontend = scenario.GraphFrontend
	}), nil)
	all := len(r.Fleet.Servers())
	x := planned(t, r.Pool, scenario.Incident{What: scenario.Crash, Server: 1, For: time.Hour})
	if err := r.happen(x); err != nil {
		t.Fatal(err)
	}
	r.until("the worker is forgotten", func() bool { return r.frontend.Workers() == all-1 })
	for range 8 {
		if a := r.postTo(r.Endpoints[0], chatPath, chat); a.err != nil || a.status != 200 {
			t.Fatalf("%d %v %.300q", a.status, a.err, a.body)
		}
	}
	if err := r.recover(x); err != nil {
		t.Fatal(err)
	}
	r.until("the worker has announced itself again", func() bool { return r.frontend.Workers() == all })
}

// besideServers has Dynamo's router in the picker and a frontend before each of two workers.
func besideServers(s *scenario.Scenario) {
	p := &s.Pools[0]
	p.Flow, p.Sidecar = scenario.Plain, scenario.DynamoSidecar
	p.EPP.Config.Text = []byte(`
plugins:
- {type: token-producer, parameters: {modelName: m, vllm: {url: "http://model-server:8000", timeout: 10s}}}
- {type: dynamo-router}
- {type: max-score-picker}
`)
}

// What comes back through a Dynamo frontend, which sends a worker tokens and gets tokens, is
// what the worker itself answers to the same request: text, finish reasons and usage.
func TestDynamoFrontendBesideServer(t *testing.T) {
	t.Parallel()
	r := start(t, quick(besideServers), nil)
	created := regexp.MustCompile(`"created":\d+`)
	const content = `"model":"m","messages":[{"role":"user","content":"some words to answer"}]`
	for name, body := range map[string]string{
		"stream": `{` + content + `,"stream":true,"stream_options":{"include_usage":true}}`,
		"usage in each": `{` + content +
			`,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`,
		"whole":          `{` + content + `}`,
		"length":         `{` + content + `,"max_tokens":2}`,
		"several":        `{` + content + `,"n":3,"stream":true}`,
		"several, whole": `{` + content + `,"n":3}`,
		"stop":           `{` + content + `,"max_tokens":30,"ignore_eos":true,"stop":["a","e"]}`,
		"stop, streamed": `{` + content + `,"max_tokens":30,"ignore_eos":true,"stop":["a","e"],"stream":true}`,
		"token ids":      `{` + content + `,"return_token_ids":true}`,
		"a form": `{` + content +
			`,"max_tokens":300,"response_format":{"type":"json_schema","json_schema":{"name":"n",` +
			`"schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}}}`,
		"a choice":      `{` + content + `,"structured_outputs":{"choice":["yes","no"]}}`,
		"completion":    `{"model":"m","prompt":"go on","max_tokens":5}`,
		"too long":      `{` + content + `,"max_tokens":100000000}`,
		"unknown model": `{"model":"another","messages":[{"role":"user","content":"hi"}]}`,
		"no JSON":       `{"model":"m",`,
	} {
		t.Run(name, func(t *testing.T) {
			path := chatPath
			if name == "completion" {
				path = "/v1/completions"
			}
			id := "id-" + strings.ReplaceAll(name, " ", "-")
			want := r.postTo(r.Fleet.Addresses()[0], path, body, "x-request-id", id)
			got := r.postTo(r.Endpoints[0], path, body, "x-request-id", id, "x-dynamo-worker-instance-id",
				dynamo.IDOf(r.Names[0]).String())
			if want.err != nil || got.err != nil || got.status != want.status {
				t.Fatalf("status %d %v, the worker itself answers %d %v: %.300s", got.status, got.err, want.status,
					want.err, got.body)
			}
			if kind := got.head.Get("content-type"); kind != want.head.Get("content-type") {
				t.Errorf("content type %q, the worker itself answers %q", kind, want.head.Get("content-type"))
			}
			plain := func(a answer) string { // the second time the prompt is cached
				return regexp.MustCompile(`"cached_tokens":\d+`).ReplaceAllString(created.ReplaceAllString(a.body, ""),
					"")
			}
			a, b := strings.SplitAfter(plain(want), "\n\n"), strings.SplitAfter(plain(got), "\n\n")
			if name == "several" { // the order of its choices differs from run to run
				slices.Sort(a)
				slices.Sort(b)
			}
			if d := cmp.Diff(a, b); d != "" {
				t.Error(d)
			}
		})
	}
}

// The picker makes the tokens, once, and names the worker; the frontend takes both as given,
// and says what it misses.
func TestDynamoFrontendDirect(t *testing.T) {
	t.Parallel()
	r := start(t, quick(besideServers), nil)
	if a := r.post(chatPath, chat); a.status != 200 {
		t.Fatalf("%d %.300q", a.status, a.body)
	}
	var why string
	for _, e := range r.rec.all() {
		if e.Hop == record.Sidecar && e.Step == record.PrefillDecided {
			why = fmt.Sprint(e.Details.Get("reason"))
		}
	}
	if why != "its tokens are given" {
		t.Errorf("the frontend says %q of the tokens; expected that they are given", why)
	}
	other := dynamo.IDOf(r.Names[1]).String()
	given := `{"model":"m","messages":[{"role":"user","content":"whatever"}],"nvext":{"token_data":[1,2,3]%s}}`
	for _, c := range []struct {
		name, body, worker string
		status             int
		says               string
	}{
		{"tokens as given", fmt.Sprintf(given, ""), other, 200, `"prompt_tokens":3,`},
		{"the worker in the body", fmt.Sprintf(given, `,"backend_instance_id":`+other), "", 200, `"prompt_tokens":3,`},
		{"no worker", chat, "", 500, "Worker ID required"},
		{"unknown worker", chat, "17", 503, "no worker with the instance id 17"},
		{"likelihoods", `{"model":"m","messages":[{"role":"user","content":"x"}],"logprobs":true}`, other, 400,
			"return no likelihoods"},
		{"a tool that must be called",
			`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function",` +
				`"function":{"name":"f"}}],"tool_choice":"required"}`, other, 400, "call no tools"},
		{"tokens that are none", `{"model":"m","messages":[],"nvext":{"token_data":"abc"}}`, other, 400, "token_data"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var head []string
			if c.worker != "" {
				head = append(head, "x-dynamo-worker-instance-id", c.worker)
			}
			if a := r.postTo(r.Endpoints[0], chatPath, c.body, head...); a.status != c.status ||
				!strings.Contains(a.body, c.says) {
				t.Errorf("%d %.400s %v; expected %d and %q", a.status, a.body, a.err, c.status, c.says)
			}
		})
	}
	served := 0
	for _, e := range r.rec.all() {
		if e.Hop == record.Server && e.Step == record.RequestReceived && e.Endpoint == r.Fleet.Addresses()[1] {
			served++
		}
	}
	if served < 2 {
		t.Errorf("the worker that was named served %d; the frontend before another one should have sent it 2", served)
	}
}
