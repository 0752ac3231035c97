package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/scenario"
)

// apart is a scenario with one prefill and one decode server behind its
// sidecar, as document 003's Flow 1.
func apart(change func(*scenario.Scenario)) *scenario.Scenario {
	text := `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    model: m
    replicas: 1
    sidecar: routing
    disaggregation: {prefillReplicas: 1}
    modelServer: {batching: continuous, prefill: 2ms, interTokenLatency: 1ms, outputTokens: 8, numGPUBlocks: 4096, maxModelLen: 16384}
`
	s, err := scenario.Parse("test.yaml", []byte(text))
	if err != nil {
		panic(err)
	}
	if change != nil {
		change(s)
	}
	return s
}

// long is a prompt far above the threshold of ten new tokens.
func long(word string) string {
	return `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat(word+" ", 400) + `"}]}`
}

const chatPath = "/v1/chat/completions"

// settled checks the end of every test: no request, block, slot or leg is left.
func (r *rig) settled() {
	r.t.Helper()
	r.idle()
	r.until("no sidecar has anything in flight", func() bool {
		for _, p := range r.Pods {
			if p.Sidecar != nil && p.Sidecar.InFlight() > 0 {
				return false
			}
		}
		return true
	})
	r.until("no engine has a request, or a block for anybody", func() bool {
		for i, s := range r.Fleet.Servers() {
			if st := s.EngineStats(); st.Running+st.Waiting > 0 || !r.isAbsent(i) && r.usage(s.URL()) != "0" {
				return false
			}
		}
		return true
	})
}

var usageLine = regexp.MustCompile(`(?m)^vllm:kv_cache_usage_perc\{[^}]*\} (\S+)$`)

var transferredLine = regexp.MustCompile(`(?m)^llmd_sidecar_kv_cache_transfer_bytes (\S+)$`)

// usage is the part of a server's KV blocks that is in use.
func (r *rig) usage(url string) string {
	r.t.Helper()
	m := usageLine.FindStringSubmatch(r.page(url))
	if m == nil {
		r.t.Fatalf("no vllm:kv_cache_usage_perc at %s", url)
	}
	return strings.TrimSuffix(m[1], ".0")
}

// page is a server's metrics.
func (r *rig) page(url string) string {
	r.t.Helper()
	way := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: way}).Get(url + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(page)
}

func (r *rig) okay(a answer) {
	r.t.Helper()
	if a.err != nil || a.status != 200 || !strings.Contains(a.body, "[DONE]") {
		r.t.Fatalf("%d %v %q", a.status, a.err, a.body)
	}
}

// decisions are the sidecars' decisions, in order.
func (r *rig) decisions() string {
	var out []string
	for _, e := range r.rec.all() {
		if e.Hop == record.Sidecar && e.Step == record.PrefillDecided {
			out = append(out, e.Details.Get("decision").(string))
		}
	}
	return strings.Join(out, " ")
}

// Cold: prefill on one pod, KV transfer, decode on another. Warm and short
// prompts stay on the decode pod.
func TestDisaggregatedFlow(t *testing.T) {
	t.Parallel()
	r := start(t, apart(nil), nil)
	r.okay(r.post(chatPath, long("cold")))
	r.settled()
	if got := r.decisions(); got != "disaggregated" {
		t.Fatalf("cold: %s", got)
	}
	if m := transferredLine.FindStringSubmatch(r.page("http://" + r.Pods[0].Sidecar.Addr())); m == nil || m[1] == "0" {
		t.Errorf("the sidecar counts no bytes of the transfer: %v", m)
	}
	var edges []record.Edge
	for _, e := range record.DisaggregatedEdges() { // the client here is not Windtunnel's
		if e.Before.Hop != record.Client && e.After.Hop != record.Client {
			edges = append(edges, e)
		}
	}
	if err := record.CheckEdges(r.rec.all(), edges); err != nil {
		t.Fatal(err)
	}
	r.okay(r.post(chatPath, long("cold")))
	if got := r.decisions(); got != "disaggregated local" {
		t.Fatalf("warm: %s", got)
	}
	r.okay(r.post(chatPath, chat))
	if got := r.decisions(); got != "disaggregated local local" {
		t.Fatalf("short: %s", got)
	}
	r.settled()
	// Ports mean what they mean in a cluster, where there are addresses enough.
	if r.addresses.Own() {
		for i, want := range []string{"8000", "8000"} {
			if _, port, _ := net.SplitHostPort(r.Endpoints[i]); port != want {
				t.Errorf("%s listens on %s", r.Names[i], r.Endpoints[i])
			}
		}
		if _, port, _ := net.SplitHostPort(r.Fleet.Servers()[0].Address()); port != "8001" {
			t.Errorf("the decode server listens on %s", port)
		}
	}
}

// apartFault spoils requests at the servers of one role.
func apartFault(role string, f lifecycle.Fault, times *atomic.Int32) func(*Options) {
	return func(o *Options) {
		o.Faults = func(so *modelserver.ServerOptions) {
			if !strings.Contains(so.Name, role) {
				return
			}
			so.Faults.Of = func(string) lifecycle.Fault {
				if times.Add(-1) >= 0 {
					return f
				}
				return lifecycle.Fault{}
			}
		}
	}
}

func once() *atomic.Int32 {
	n := &atomic.Int32{}
	n.Store(1)
	return n
}

// Each fault ends the request in one way, leaves nothing behind, and the next
// request is served.
func TestDisaggregatedFaults(t *testing.T) {
	t.Parallel()
	local := func(s *scenario.Scenario) { s.Pools[0].Disaggregation.OnPrefillFailure = scenario.DecodeAlone }
	recompute := func(s *scenario.Scenario) { s.Pools[0].Disaggregation.OnTransferFailure = scenario.Recompute }
	// long enough for the request after it on a busy machine
	short := func(s *scenario.Scenario) { s.Pools[0].Disaggregation.HoldBlocks = 3 * time.Second }
	for _, c := range []struct {
		name   string
		change func(*scenario.Scenario)
		role   string
		fault  lifecycle.Fault
		status int
		cut    bool
		body   string
	}{
		{"the prefill pod dies in its prefill", nil, "prefill",
			lifecycle.Fault{lifecycle.AtPrefill: {Do: lifecycle.Close}}, 502, false, ""},
		{"the prefill pod dies, the decode pod does it all", local, "prefill",
			lifecycle.Fault{lifecycle.AtPrefill: {Do: lifecycle.Close}}, 200, false, "[DONE]"},
		{"the prefill pod refuses", nil, "prefill", lifecycle.Fault{lifecycle.AtAnswer: {Do: lifecycle.Answer, N: 503}},
			503, false, ""},
		{"the decode pod dies after the prefill", nil, "decode",
			lifecycle.Fault{lifecycle.AtConnect: {Do: lifecycle.Reset}}, 502, false, "BadGateway"},
		{"the decode pod dies after its first token", nil, "decode",
			lifecycle.Fault{lifecycle.AtTokens: {Do: lifecycle.Reset}}, 0, true, ""},
		{"the blocks are gone before they are fetched", short, "decode",
			lifecycle.Fault{lifecycle.AtBody: {Do: lifecycle.Wait, For: 5 * time.Second}}, 500, false, ""},
		{"the transfer fails", nil, "decode", lifecycle.Fault{lifecycle.AtTransfer: {Do: lifecycle.Lose}}, 500, false,
			""},
		{"the transfer fails, the prompt is computed again", recompute, "decode",
			lifecycle.Fault{lifecycle.AtTransfer: {Do: lifecycle.Lose}}, 200, false, "[DONE]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, apart(func(s *scenario.Scenario) {
				// What nobody fetches is freed, though not before a busy machine has sent
				// the decode leg.
				s.Pools[0].Disaggregation.HoldBlocks = 5 * time.Second
				if c.change != nil {
					c.change(s)
				}
			}), apartFault(c.role, c.fault, once()))
			a := r.post(chatPath, long("x"))
			switch {
			case c.cut:
				if a.err == nil && strings.Contains(a.body, "[DONE]") {
					t.Fatalf("whole: %d %q", a.status, a.body)
				}
			case a.err != nil || a.status != c.status || !strings.Contains(a.body, c.body):
				t.Fatalf("%d %v %q", a.status, a.err, a.body)
			}
			r.settled()
			r.okay(r.post(chatPath, long("y")))
			r.settled()
		})
	}
}

// The client leaves in either leg: both servers give up, nothing is held.
func TestClientLeavesDisaggregated(t *testing.T) {
	t.Parallel()
	for _, leg := range []record.Step{record.PrefillLegSent, record.DecodeLegSent} {
		t.Run(string(leg), func(t *testing.T) {
			t.Parallel()
			// What is computed for a decode leg that nobody sends is soon let go; one that
			// is sent comes in time on a busy machine, too.
			holds, working := 100*time.Millisecond, 1
			if leg == record.DecodeLegSent {
				holds, working = patience, 2
			}
			r := start(t, apart(func(s *scenario.Scenario) { s.Pools[0].Disaggregation.HoldBlocks = holds }),
				func(o *Options) {
					o.Faults = func(so *modelserver.ServerOptions) {
						// Slow enough to leave in: each step of the engine.
						timer, err := latency.New(latency.Config{Kind: latency.KindConstant,
							Constant: latency.Constant{TimeToFirstToken: 500 * machine.Millisecond,
								InterTokenLatency: 500 * machine.Millisecond}})
						if err != nil {
							panic(err)
						}
						so.Engine.Timer = timer
					}
				})
			ctx, leave := context.WithCancel(context.Background())
			done := make(chan answer)
			go func() { done <- do(r.request(ctx, http.MethodPost, chatPath, long("x"))) }()
			r.until(string(leg), func() bool { return r.rec.count(record.Sidecar, leg) > 0 })
			r.until("the leg's server works",
				func() bool { return r.rec.count(record.Server, record.PrefillStarted) == working })
			leave()
			<-done
			r.settled()
			if r.rec.count(record.Sidecar, record.Aborted) != 1 {
				t.Error("the sidecar did not report it")
			}
			if leg == record.PrefillLegSent && r.rec.count(record.Sidecar, record.DecodeLegSent) != 0 {
				t.Error("decoded for nobody")
			}
		})
	}
}

// A restart of a sidecar cuts its requests, and later requests are served.
func TestSidecarRestarts(t *testing.T) {
	t.Parallel()
	r := start(t, apart(func(s *scenario.Scenario) { s.Pools[0].ModelServer.OutputTokens = mustCount("4000") }), nil)
	done := make(chan answer)
	go func() { done <- r.post(chatPath, long("x")) }()
	r.until("the decode leg answers", func() bool { return r.rec.count(record.Sidecar, record.FirstTokenSeen) == 1 })
	if err := r.Pods[0].RestartSidecar(); err != nil {
		t.Fatal(err)
	}
	if a := <-done; a.err == nil && strings.Contains(a.body, "[DONE]") {
		t.Fatalf("whole: %d", a.status)
	}
	r.settled()
	r.okay(r.post(chatPath, `{"model":"m","stream":true,"max_tokens":3,"messages":[{"role":"user",`+
		`"content":"again"}]}`))
	r.settled()
}

// A server outside the pool that a client names as prefiller is never
// contacted: our picker takes the header away, and the sidecar refuses it when
// a picker does not.
func TestFakePrefiller(t *testing.T) {
	t.Parallel()
	var contacts atomic.Int32
	fake := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { contacts.Add(1) }))
	defer fake.Close()
	host := strings.TrimPrefix(fake.URL, "http://")
	r := start(t, apart(nil), nil)
	r.okay(r.post(chatPath, chat, disagg.PrefillerHeader, host))
	r.settled()
	plain := start(t, apart(nil), nil)
	sidecar := "http://" + plain.Endpoints[0]
	a := plain.postTo(sidecar, chatPath, long("x"), disagg.PrefillerHeader, host)
	if a.status != 403 || !strings.Contains(a.body, disagg.Blocked) {
		t.Fatalf("%d %q", a.status, a.body)
	}
	plain.settled()
	if contacts.Load() != 0 || plain.rec.count(record.Sidecar, record.PrefillerBlocked) != 1 {
		t.Fatalf("contacted %d times", contacts.Load())
	}
	// A member of the pool may be named.
	plain.okay(plain.postTo(sidecar, chatPath, long("y"), disagg.PrefillerHeader, plain.Endpoints[1]))
	if got := plain.decisions(); got != "disaggregated" {
		t.Fatal(got)
	}
	plain.settled()
}

// Document 002's sessions through the real Envoy: the second message finds its
// KV cache, and a sidecar that has forgotten prefills again.
func TestSessions(t *testing.T) {
	t.Parallel()
	r := start(t, apart(func(s *scenario.Scenario) {
		s.Pools[0].EPP.Config = scenario.PickerConfig{File: "epp.yaml",
			Text: []byte("plugins: [{type: decode-filter}, {type: round-robin-picker}]")}
		s.Pools[0].Disaggregation.SessionCache = 10
	}), nil)
	first := `{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"Hello! ` +
		strings.Repeat("Good day. ", 50) + `"}`
	a := r.post(chatPath, first+`]}`)
	if a.status != 200 {
		t.Fatalf("%d %v %s", a.status, a.err, a.body)
	}
	said := between(a.body, `"content":"`, `"`)
	r.settled()
	again := first + `,{"role":"assistant","content":"` + said + `"},{"role":"user","content":"What's 2+2?"}]}`
	if a = r.post(chatPath, again); a.status != 200 {
		t.Fatalf("%d %v %s", a.status, a.err, a.body)
	}
	if err := r.Pods[0].RestartSidecar(); err != nil {
		t.Fatal(err)
	}
	if a = r.post(chatPath, again); a.status != 200 {
		t.Fatalf("%d %v %s", a.status, a.err, a.body)
	}
	if got := r.decisions(); got != "disaggregated session disaggregated" {
		t.Fatal(got)
	}
	r.settled()
}

func between(s, before, after string) string {
	_, s, _ = strings.Cut(s, before)
	s, _, _ = strings.Cut(s, after)
	return s
}

// The connectors find the same pods, whatever they send, and with each of them
// the decode server gets the prompt's cache instead of computing it again.
func TestConnectors(t *testing.T) {
	t.Parallel()
	for _, way := range connector.All {
		t.Run(way.Name, func(t *testing.T) {
			t.Parallel()
			r := start(t, apart(func(s *scenario.Scenario) {
				s.Pools[0].Disaggregation.Connector = scenario.Connector(way.Name)
			}), nil)
			r.okay(r.post(chatPath, long("x")))
			r.settled()
			if got := r.decisions(); got != "disaggregated" {
				t.Fatal(got)
			}
			decode := r.Fleet.Servers()[0]
			cached, prefills := 0.0, 0
			for _, e := range r.rec.all() {
				if e.Hop == record.Server && e.Step == record.PrefillStarted {
					prefills++
					if n := numberOf(e.Details.Get("cached_tokens")); e.Endpoint == decode.Address() {
						cached += n
					}
				}
			}
			if cached < 200 || prefills != 2 {
				t.Errorf("%v of the prompt's tokens came to the decode server; %d servers had the prompt", cached,
					prefills)
			}
		})
	}
}

// Where both legs are sent at once a prefill that fails leaves the decode server
// waiting for a cache that never comes. The request ends once, when the time
// for which blocks are held is up, and nothing is kept for it.
func TestLostRooms(t *testing.T) {
	t.Parallel()
	for k, way := range []*connector.Connector{connector.SGLang, connector.Mooncake, connector.Offloading} {
		for name, fault := range map[string]lifecycle.Fault{
			"the prefill pod dies": {lifecycle.AtPrefill: {Do: lifecycle.Close}},
			"it refuses":           {lifecycle.AtAnswer: {Do: lifecycle.Answer, N: 503}}} {
			for i, failure := range []scenario.TransferFailure{scenario.FailRequest, scenario.Recompute} {
				if !nightly.On() && (i == 0) != (name == "it refuses") || !nightly.Each(i+k, 2) {
					continue
				}
				t.Run(way.Name+" "+name+" "+string(failure), func(t *testing.T) {
					t.Parallel()
					r := start(t, apart(func(s *scenario.Scenario) {
						d := &s.Pools[0].Disaggregation
						// as long as the prefill leg of the request after it may take on a busy machine
						d.Connector, d.HoldBlocks, d.OnTransferFailure = scenario.Connector(way.Name), 10*time.Second,
							failure
						// A busy machine is late to notice its beginning.
						s.Pools[0].ModelServer.Prefill = dist.Fixed(3e9)
					}), apartFault("prefill", fault, once()))
					a := r.post(chatPath, long("x"))
					switch {
					case failure == scenario.Recompute:
						r.okay(a)
					case a.err != nil || a.status != 500:
						t.Fatalf("%d %v %q", a.status, a.err, a.body)
					}
					r.settled()
					r.okay(r.post(chatPath, long("y")))
					r.settled()
				})
			}
		}
	}
}

// numberOf is a detail's number, whichever kind of number it is.
func numberOf(v any) float64 {
	n, err := strconv.ParseFloat(fmt.Sprint(v), 64)
	if err != nil {
		return 0
	}
	return n
}

// A prefill leg makes one token, so that whatever a model would call or write is
// cut there: what the client has is whole all the same.
func TestStructuredApart(t *testing.T) {
	t.Parallel()
	r := start(t, apart(nil), nil)
	words := strings.Repeat("word ", 400)
	const schema = `{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},` +
		`"required":["city","days"]}`
	for i := range 4 {
		said := words + strconv.Itoa(i)
		for _, c := range []struct{ path, body, field string }{
			{"/v1/messages", `{"model":"m","max_tokens":60,"messages":[{"role":"user","content":"` + said +
				`m"}],"tools":[{"name":"weather","input_schema":` + schema + `}],"tool_choice":{"type":"any"}}`,
				"content.0.input"},
			{"/v1/messages", `{"model":"m","max_tokens":3,"messages":[{"role":"user","content":"` + said +
				`c"}],"tools":[{"name":"weather","input_schema":` + schema + `}],"tool_choice":{"type":"any"}}`, ""},
			{"/v1/messages", `{"model":"m","max_tokens":60,"messages":[{"role":"user","content":"` + said +
				`f"}],"output_config":{"format":{"type":"json_schema","schema":` + schema + `}}}`, "content.0.text"},
			{chatPath, `{"model":"m","messages":[{"role":"user","content":"` + said +
				`t"}],"tools":[{"type":"function","function":{"name":"weather","parameters":` + schema +
				`}}],"tool_choice":"required"}`, "choices.0.message.tool_calls.0.function.arguments"},
			{chatPath, `{"model":"m","messages":[{"role":"user","content":"` + said +
				`r"}],"response_format":{"type":"json_schema","json_schema":{"name":"weather","schema":` + schema +
				`}}}`, "choices.0.message.content"},
			{"/v1/responses", `{"model":"m","input":"` + said +
				`o","text":{"format":{"type":"json_schema","name":"weather","schema":` + schema + `}}}`,
				"output.0.content.0.text"},
		} {
			a := r.post(c.path, c.body)
			var weather struct {
				City *string
				Days *int
			}
			at := gjson.Get(a.body, c.field)
			text := at.String()
			if c.field == "" {
				text = `{"city":"","days":0}`
			}
			if a.status != 200 || !gjson.Valid(a.body) || json.Unmarshal([]byte(text), &weather) != nil ||
				weather.City == nil || weather.Days == nil {
				t.Errorf("%s %s: %d %v %s", c.path, c.field, a.status, a.err, a.body)
			}
		}
	}
	if got := r.decisions(); strings.Contains(got, "local") || !strings.Contains(got, "disaggregated") {
		t.Errorf("decided %s", got)
	}
	r.settled()
}
