package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/live/serve"
)

const picture = `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":[{"type":"text",` +
	`"text":"what?"},` +
	`{"type":"image_url","image_url":{"url":"http://x/a"}},{"type":"image_url","image_url":{"url":"http://x/b"}},` +
	`{"type":"image_url","image_url":{"url":"http://x/a"}}]}]}`

func (k *worker) bodies() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.body...)
}

// Each image goes to an encode server, all at once and each once; what they say
// goes to the prefill server.
func TestEncodeServers(t *testing.T) {
	t.Parallel()
	encode := func(key string) *worker {
		return startWorker(t, false, `{"choices":[],"ec_transfer_params":{"`+key+`":{"peer_port":1}}}`)
	}
	one, two := encode("h1"), encode("h2")
	both := make(chan struct{}, 2) // neither answers before both are asked
	for _, k := range []*worker{one, two} {
		answer := k.then
		k.then = func(w http.ResponseWriter, q *http.Request) {
			both <- struct{}{}
			until(t, "both are asked", func() bool { return len(both) == 2 })
			answer(w, q)
		}
	}
	r := start(t, func(_ *rig, o *Options) { o.Disagg.Encoder = disagg.ECNIXL })
	resp, body := r.ask(picture, "x-encoder-hosts-ports", one.addr()+", "+two.addr(), "x-prefiller-host-port",
		r.prefill.addr(), "Authorization", "Bearer t")
	if resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode, body)
	}
	want := `{"max_tokens":1,"messages":[{"content":[{"image_url":{"url":"http://x/a"},"type":"image_url"}],` +
		`"role":"user"}],"model":"m","stream":false}`
	if got := one.bodies(); len(got) != 1 || got[0] != want {
		t.Errorf("encode leg %v", got)
	}
	if q := one.seen[0]; q.Header.Get("Authorization") != "" ||
		!strings.HasSuffix(q.Header.Get("X-Request-Id"), "-enc-0") || q.URL.Path != "/v1/chat/completions" {
		t.Errorf("encode leg %v %v", q.URL, q.Header)
	}
	var p struct {
		EC        map[string]any `json:"ec_transfer_params"`
		Threshold *float64       `json:"cache_hit_threshold"`
	}
	if got := r.prefill.bodies(); len(got) != 1 || json.Unmarshal([]byte(got[0]), &p) != nil || len(p.EC) != 2 ||
		p.Threshold == nil {
		t.Errorf("prefill leg %v", got)
	}
	if ids := r.prefill.seen[0].Header.Values("X-Request-Id"); len(ids) != 2 {
		t.Errorf("request ids %v", ids)
	}
}

// One encode server that fails ends the request, and the others' work with it.
func TestEncodeServerFails(t *testing.T) {
	t.Parallel()
	slow, bad := startWorker(t, false, "{}"), startWorker(t, false, "{}")
	let := make(chan struct{})
	slow.then = func(_ http.ResponseWriter, q *http.Request) {
		close(let)
		<-q.Context().Done()
	}
	bad.then = func(w http.ResponseWriter, _ *http.Request) {
		<-let
		w.WriteHeader(418)
		_, _ = io.WriteString(w, "no tea")
	}
	r := start(t, func(_ *rig, o *Options) { o.Disagg.Encoder = disagg.ECExample })
	resp, body := r.ask(picture, "x-encoder-hosts-ports", slow.addr()+","+bad.addr(), "x-prefiller-host-port",
		r.prefill.addr())
	if resp.StatusCode != 502 || !strings.Contains(body, "encoder request failed for item 1 with status 418: no tea") {
		t.Error(resp.StatusCode, body)
	}
	if r.prefill.calls()+r.decode.calls() != 0 {
		t.Error("the request went on")
	}
}

// MoRI-IO, both legs at once: the client gets the decode server's answer when
// the prefill has succeeded, and not before.
func TestParallelDispatch(t *testing.T) {
	t.Parallel()
	r := start(t, func(_ *rig, o *Options) {
		o.Disagg.MoRIIO = connector.MoRIIO{Write: true, Parallel: true, DecodeNotifyPort: 1, PrefillHandshakePort: 2}
		o.Peers.Local = "10.0.0.9"
	})
	answer := r.prefill.then
	r.prefill.then = func(w http.ResponseWriter, q *http.Request) {
		until(t, "the decode server is asked meanwhile", func() bool { return r.decode.calls() == 1 })
		answer(w, q)
	}
	resp, body := r.ask(chatBody, "x-prefiller-host-port", r.prefill.addr(), "X-Request-Id", "mine")
	if resp.StatusCode != 200 || body != decoded {
		t.Error(resp.StatusCode, body)
	}
	pre, dec := r.prefill.bodies()[0], r.decode.bodies()[0]
	if !strings.Contains(pre, `"remote_host":"10.0.0.9"`) || !strings.Contains(pre, `"max_output_tokens":1`) ||
		!strings.Contains(dec, `"remote_engine_id":"127.0.0.1:2"`) ||
		!strings.Contains(dec, `"do_remote_prefill":true`) {
		t.Error(pre, dec)
	}
	ids := r.prefill.seen[0].Header.Values("X-Request-Id")
	if len(ids) != 1 || ids[0] == "mine" || ids[0] != r.decode.seen[0].Header.Get("X-Request-Id") {
		t.Error("request ids", ids)
	}
}

// A prefill that fails or does not come in time takes the decode leg with it.
func TestParallelDispatchFails(t *testing.T) {
	t.Parallel()
	// both legs are there long before
	for late, wait := range map[bool]machine.Time{false: 60 * machine.Second, true: 3 * machine.Second} {
		r := start(t, func(_ *rig, o *Options) {
			o.Disagg.MoRIIO = connector.MoRIIO{Write: true, Parallel: true, Wait: wait}
		})
		ended := make(chan struct{})
		r.decode.then = func(_ http.ResponseWriter, q *http.Request) {
			<-q.Context().Done()
			close(ended)
		}
		r.prefill.then = func(w http.ResponseWriter, q *http.Request) {
			until(t, "the decode server is asked", func() bool { return r.decode.calls() == 1 })
			if late {
				<-q.Context().Done()
				return
			}
			w.WriteHeader(507)
			_, _ = io.WriteString(w, "full")
		}
		resp, body := r.ask(chatBody, "x-prefiller-host-port", r.prefill.addr())
		switch {
		case late && (resp.StatusCode != 504 || !strings.Contains(body, "KV-wait timeout")):
			t.Error(resp.StatusCode, body)
		case !late && (resp.StatusCode != 507 || body != "full"):
			t.Error(resp.StatusCode, body)
		}
		<-ended
	}
}

// A client that streams gets each chunk while the next one is being made.
func TestChunksStream(t *testing.T) {
	t.Parallel()
	r := start(t, func(_ *rig, o *Options) { o.Disagg.ChunkTokens = 4 })
	next := make(chan struct{})
	r.decode.then = func(w http.ResponseWriter, _ *http.Request) {
		reason := "length"
		if r.decode.calls() == 2 {
			<-next
			reason = "stop"
		}
		_, _ = io.WriteString(w,
			`{"id":"x","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"`+
				reason+`"}],"usage":{"prompt_tokens":5,"completion_tokens":4}}`)
	}
	resp, err := r.client.Do(
		r.request(t.Context(), strings.Replace(chatBody, `"model"`, `"stream":true,"model"`, 1),
			"x-prefiller-host-port", r.prefill.addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Connection"); got != "keep-alive" { // as the real sidecar says
		t.Errorf("Connection: %q", got)
	}
	buf := make([]byte, 4096)
	n, err := resp.Body.Read(buf)
	if got := string(buf[:n]); err != nil || !strings.HasPrefix(got, "data: {") || !strings.HasSuffix(got, "\n\n") ||
		strings.Contains(got, "[DONE]") {
		t.Fatalf("%q %v", got, err)
	}
	close(next)
	rest, err := io.ReadAll(resp.Body)
	if want := `data: {"choices":[],"usage":{"completion_tokens":8,"prompt_tokens":5,` +
		`"prompt_tokens_details":{"cached_tokens":4},"total_tokens":13}}` + "\n\ndata: [DONE]\n\n"; err != nil ||
		!strings.HasSuffix(string(rest), want) {
		t.Errorf("%q %v", rest, err)
	}
}

// x-data-parallel-host-port names one of the sidecar's own ports.
func TestRankHeader(t *testing.T) {
	t.Parallel()
	r := start(t, func(_ *rig, o *Options) { o.Disagg.PodIP = "10.0.0.9" })
	p := serve.PortOf(r.Addr())
	if resp, body := r.ask(chatBody, "x-data-parallel-host-port",
		netip.AddrPortFrom(netip.MustParseAddr("10.0.0.9"), uint16(p)).String()); resp.StatusCode != 200 {
		t.Error(resp.StatusCode, body)
	}
	if resp, body := r.ask(chatBody, "x-data-parallel-host-port", "10.0.0.9:1"); resp.StatusCode != 400 || body != "" ||
		r.decode.calls() != 1 {
		t.Error(resp.StatusCode, body)
	}
}

// The names of MoRI-IO's peers are looked up at the start, and again when their
// time is up; a failed look-up changes nothing.
func TestPeers(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	o := Options{Peers: connector.MoRIIOPeers{Local: "localhost", Decode: []string{"10.0.0.1"}},
		ResolveTTL: time.Nanosecond, Log: slog.New(slog.DiscardHandler)}
	p, err := newPeers(t.Context(), &o, m)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if got := p.now(); got.Local != "127.0.0.1" || got.Decode[0] != "10.0.0.1" {
		t.Fatalf("%+v", got)
	}
	p.wg.Wait()
	p.lookUp = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("::1"), netip.MustParseAddr("10.9.9.9")}, nil
	}
	until(t, "the new address is known", func() bool { return p.now().Local == "10.9.9.9" })
	p.wg.Wait()
	p.lookUp = func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no") }
	p.now()
	p.wg.Wait()
	if got := p.now(); got.Local != "10.9.9.9" {
		t.Errorf("%+v", got)
	}
	p.wg.Wait()
	o.Peers.Local = "nowhere.invalid"
	if _, err := newPeers(t.Context(), &o, m); err == nil {
		t.Error("a name that nobody knows was taken")
	}
}

// The sidecar's metrics have a port of their own where one is asked for.
func TestMetricsPort(t *testing.T) {
	t.Parallel()
	r := start(t, func(_ *rig, o *Options) { o.MetricsListen = "127.0.0.1:0" })
	resp, err := r.client.Get("http://" + r.MetricsAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	page, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	for _, want := range []string{"moriio_dns_reresolve_total 0", "moriio_dns_ip_changed_total 0",
		"moriio_dns_lookup_failures_total 0", "llmd_sidecar_prefill_requests_total 0"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("%s is missing", want)
		}
	}
}
