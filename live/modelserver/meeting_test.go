package modelserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// apart is a prefill and a decode server under a connector, each with a meeting
// port of its own.
func apart(t *testing.T, profile link.Profile, change func(*ServerOptions)) *pair {
	t.Helper()
	timer, err := latency.New(
		latency.Config{Kind: latency.KindConstant,
			Constant: latency.Constant{TimeToFirstToken: machine.Millisecond, InterTokenLatency: machine.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	o := ServerOptions{Models: []string{"m"}, Engine: engine.Config{Timer: timer}, PromptTokensDetails: true}
	if profile.MeetingPort != 0 {
		o.Meeting = "127.0.0.1:0"
	}
	if change != nil {
		change(&o)
	}
	f, err := New(Options{Servers: []ServerOptions{o, o}, Seed: 1,
		Transfer: enginecore.NetworkConfig{Profile: profile}})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := &pair{t, f, f.Servers()[0], f.Servers()[1]}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		f.Stop(ctx)
	})
	return p
}

// cached is how many prompt tokens an answer says were not computed.
func cached(t *testing.T, body string) int {
	t.Helper()
	var a struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		t.Fatal(err, body)
	}
	return a.Usage.Details.Cached
}

// idle waits until neither server holds a block.
func (p *pair) idle() {
	p.t.Helper()
	p.waitFor("all blocks are free", func() bool {
		for _, s := range p.fleet.Servers() {
			n := 0
			s.engine.With(func(machine.Time) { n = s.engine.Core.Engine().KVBlocksUsed() })
			if n != 0 || s.InFlight() != 0 {
				return false
			}
		}
		return p.held() == 0
	})
}

// legs returns the legs that the sidecar sends to both servers for one prompt.
func legs(p *pair, profile link.Profile, prompt, id string) (prefill, decode string) {
	host, port, _ := net.SplitHostPort(p.prefill.MeetingAddress())
	body := func(n int, more string) string {
		return `{"prompt":` + strconvQuote(prompt) + `,"max_tokens":` + fmt.Sprint(n) + more + `}`
	}
	switch profile.Name {
	case connector.SGLang.Name:
		both := body(3, fmt.Sprintf(`,"bootstrap_host":%q,"bootstrap_port":%s,"bootstrap_room":%s`, host, port, id))
		return both, both
	case connector.Mooncake.Name:
		return body(1, `,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"xfer-`+
				id+`"}`),
			body(3, fmt.Sprintf(`,"kv_transfer_params":{"do_remote_decode":false,"do_remote_prefill":true,`+
				`"remote_bootstrap_addr":"http://%s","remote_engine_id":%q,"transfer_id":"xfer-%s"}`,
				p.prefill.MeetingAddress(), p.prefill.reader.EngineID, id))
	case connector.Offloading.Name:
		return body(1, `,"kv_transfer_params":{"remote_decoder":{"kv_request_id":"`+id+`"}}`),
			body(3, fmt.Sprintf(`,"kv_transfer_params":{"remote_prefiller":{"kv_request_id":"%s","remote_host":%q,`+
				`"remote_port":%s}}`, id, host, port))
	}
	return body(1, ""), body(3, "")
}

// Where both legs come at once the decode server waits for the prefill
// server's cache, whichever leg is first, and computes no token of the prompt
// but the last.
func TestMeeting(t *testing.T) {
	t.Parallel()
	for _, profile := range []link.Profile{connector.SGLang.Profile, connector.Mooncake.Profile,
		connector.Offloading.Profile} {
		for _, decodeFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s decode first %v", profile.Name, decodeFirst), func(t *testing.T) {
				t.Parallel()
				p := apart(t, profile, nil)
				first, second := legs(p, profile, longPrompt(1), "17")
				var wg sync.WaitGroup
				var pre, dec answered
				prefill := func() { pre = p.ask(p.prefill, first) }
				if decodeFirst {
					wg.Go(func() { dec = p.ask(p.decode, second) })
					p.waitFor("the decode server asks", func() bool {
						return p.awaited() == 1
					})
					prefill()
				} else {
					prefill()
					dec = p.ask(p.decode, second)
				}
				wg.Wait()
				if pre.status != 200 || dec.status != 200 {
					t.Fatal(pre.body, dec.body)
				}
				if n := cached(t, dec.body); n < 512 {
					t.Errorf("%d tokens came from the prefill server: %s", n, dec.body)
				}
				if said(t, p.decode, saidHits) < 512 || said(t, p.decode, saidBytes) == 0 ||
					said(t, p.decode, saidFailed) != 0 {
					t.Errorf("%v tokens, %v bytes, %v failed", said(t, p.decode, saidHits),
						said(t, p.decode, saidBytes), said(t, p.decode, saidFailed))
				}
				p.idle()
			})
		}
	}
}

// A prefill that never comes, one that nobody fetches, and a client that leaves
// while its decode server waits: each ends once, and nothing is held.
func TestMeetingInVain(t *testing.T) {
	t.Parallel()
	for _, profile := range []link.Profile{connector.SGLang.Profile, connector.Mooncake.Profile,
		connector.Offloading.Profile} {
		t.Run(profile.Name, func(t *testing.T) {
			t.Parallel()
			p := apart(t, profile, func(o *ServerOptions) { o.Engine.KVHoldTimeout = 300 * machine.Millisecond })
			first, second := legs(p, profile, longPrompt(1), "1")
			if a := p.ask(p.decode, second); a.status != 500 {
				t.Errorf("nobody prefilled: %d %s", a.status, a.body)
			}
			p.idle()
			if a := p.ask(p.prefill, first); a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
			p.idle()                   // by the time limit
			p = apart(t, profile, nil) // the client leaves long before its time limit
			_, second = legs(p, profile, longPrompt(1), "1")
			ctx, leave := context.WithCancel(t.Context())
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, p.decode.URL()+"/v1/completions",
				strings.NewReader(second))
			gone := make(chan error, 1)
			go func() {
				_, err := http.DefaultClient.Do(req)
				gone <- err
			}()
			p.waitFor("the decode server asks", func() bool {
				return p.awaited() == 1
			})
			leave()
			<-gone
			p.idle()
			p.waitFor("nobody waits at the prefill server", func() bool {
				return p.awaited() == 0 && p.held() == 0
			})
		})
	}
}

// Recompute: a lost room costs time and nothing else.
func TestMeetingRecompute(t *testing.T) {
	t.Parallel()
	p := apart(t, connector.Mooncake.Profile, func(o *ServerOptions) {
		o.Engine.KVHoldTimeout, o.Engine.KVLoadFailure = 100*machine.Millisecond, engine.KVLoadRecompute
	})
	_, second := legs(p, connector.Mooncake.Profile, longPrompt(1), "1")
	if a := p.ask(p.decode, second); a.status != 200 || cached(t, a.body) != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	p.idle()
}

// Shared storage and LMCache: what one server has computed another finds by its
// content, in as many blocks as agree.
func TestExternalCache(t *testing.T) {
	t.Parallel()
	for _, profile := range []link.Profile{connector.SharedStorage.Profile, connector.LMCache.Profile} {
		for _, batching := range []engine.Batching{engine.BatchingContinuous, engine.BatchingIndependent} {
			t.Run(fmt.Sprint(profile.Name, " ", batching), func(t *testing.T) {
				t.Parallel()
				p := apart(t, profile, func(o *ServerOptions) {
					if batching == engine.BatchingIndependent {
						*o = fast()
						o.PromptTokensDetails = true
					}
				})
				_, second := legs(p, profile, longPrompt(1), "")
				if a := p.ask(p.decode, second); a.status != 200 || cached(t, a.body) != 0 {
					t.Fatal(a.body)
				}
				first, other := legs(p, profile, longPrompt(2), "")
				if a := p.ask(p.prefill, first); a.status != 200 || cached(t, a.body) != 0 {
					t.Fatal(a.body)
				}
				a := p.ask(p.decode, other)
				if a.status != 200 || cached(t, a.body) < 512-16 {
					t.Fatal(a.body)
				}
				if said(t, p.decode, saidBytes) == 0 && batching == engine.BatchingContinuous ||
					said(t, p.decode, saidFailed) != 0 {
					t.Errorf("%v bytes moved, %v transfers failed", said(t, p.decode, saidBytes),
						said(t, p.decode, saidFailed))
				}
				p.idle()
			})
		}
	}
}

// The offloading connector pulls a prefix of the prompt from a server with that prefix in its cache.
func TestKVSource(t *testing.T) {
	t.Parallel()
	p := apart(t, connector.Offloading.Profile, nil)
	body := `{"prompt":` + strconvQuote(longPrompt(1)) + `,"max_tokens":2}`
	if a := p.ask(p.prefill, body); a.status != 200 {
		t.Fatal(a.body)
	}
	host, port, _ := net.SplitHostPort(p.prefill.MeetingAddress())
	source := func(port string) string {
		return strings.TrimSuffix(body, "}") +
			fmt.Sprintf(`,"kv_transfer_params":{"remote_kv_source":{"kv_request_id":"x","remote_host":%q,`+
				`"remote_port":%s}}}`, host, port)
	}
	if a := p.ask(p.decode, source(port)); a.status != 200 || cached(t, a.body) < 512-16 {
		t.Error(a.body)
	}
	if a := p.ask(p.decode, strings.Replace(source("1"), `"prompt":"1 `, `"prompt":"9 `, 1)); a.status != 200 ||
		cached(t, a.body) != 0 {
		t.Error("a source that is not there: ", a.body)
	}
	p.idle()
}

// MoRI-IO: one leg after the other the blocks are named as NIXL names them; at
// once the servers meet by the transfer's id at the handshake port.
func TestMoRIIO(t *testing.T) {
	t.Parallel()
	p := apart(t, connector.NIXLv2.Profile, func(o *ServerOptions) { o.Meeting = "127.0.0.1:0" })
	host, port, _ := net.SplitHostPort(p.prefill.MeetingAddress())
	body := func(i, n int, kv string) string {
		return fmt.Sprintf(`{"prompt":%s,"max_tokens":%d,"kv_transfer_params":%s}`, strconvQuote(longPrompt(i)), n, kv)
	}
	prefill := `{"do_remote_decode":true,"do_remote_prefill":false,"remote_host":"10.0.0.9",` +
		`"remote_notify_port":61005,"transfer_id":"tx1","remote_block_ids":null,"remote_port":null}`
	pre := p.ask(p.prefill, body(1, 1, prefill))
	if dec := p.ask(p.decode, body(1, 3, string(pre.KV))); pre.status != 200 || dec.status != 200 ||
		cached(t, dec.body) < 512 {
		t.Fatal(pre.body, dec.body)
	}
	p.idle()
	var dec answered
	var wg sync.WaitGroup
	wg.Go(func() {
		dec = p.ask(p.decode, body(2, 3,
			fmt.Sprintf(`{"do_remote_decode":false,"do_remote_prefill":true,"remote_engine_id":"%s:%s",`+
				`"remote_block_ids":[],"remote_host":%q,"remote_notify_port":61005,"remote_handshake_port":%s,`+
				`"transfer_id":"tx2"}`, host, port, host, port)))
	})
	if pre = p.ask(p.prefill, body(2, 1, strings.Replace(prefill, "tx1", "tx2", 1))); pre.status != 200 {
		t.Error(pre.body)
	}
	wg.Wait()
	if dec.status != 200 || cached(t, dec.body) < 512 {
		t.Error(dec.body)
	}
	p.idle()
}

// The meeting port answers Mooncake's question over HTTP, and nothing else.
func TestBootstrapQuery(t *testing.T) {
	t.Parallel()
	p := apart(t, connector.Mooncake.Profile, nil)
	resp, err := http.Get("http://" + p.prefill.MeetingAddress() + "/query")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if want := `{"0":{"engine_id":"` + p.prefill.reader.EngineID + `"}}`; string(body) != want {
		t.Errorf("%s, want %s", body, want)
	}
	if resp, err = http.Get("http://" + p.prefill.MeetingAddress() + "/"); err != nil || resp.StatusCode != 404 {
		t.Error(resp, err)
	}
	resp.Body.Close()
	conn, err := net.Dial("tcp", p.prefill.MeetingAddress())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintln(conn, `{"op":"await","engine_id":"another","key":"x"}`)
	if line, _ := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, "this is engine") {
		t.Error(line)
	}
}

// What cannot be meant is refused by name.
func TestMeetingFields(t *testing.T) {
	t.Parallel()
	p := apart(t, connector.SGLang.Profile, nil)
	for _, fields := range []string{`"bootstrap_room":"x"`, `"bootstrap_room":5,"bootstrap_host":7,"bootstrap_port":1`,
		`"bootstrap_room":5,"bootstrap_host":"h","bootstrap_port":99999`,
		`"bootstrap_room":-1,"bootstrap_host":"h","bootstrap_port":9`} {
		if a := p.ask(p.decode, `{"prompt":"x",`+fields+`}`); a.status != 400 ||
			!strings.Contains(a.body, "bootstrap_room") {
			t.Errorf("%s: %d %s", fields, a.status, a.body)
		}
	}
	m := apart(t, connector.Mooncake.Profile, nil)
	if a := m.ask(m.decode, `{"prompt":"x","kv_transfer_params":{"do_remote_prefill":true,"transfer_id":"t",`+
		`"remote_bootstrap_addr":"::"}}`); a.status != 400 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
