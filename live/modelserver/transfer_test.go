package modelserver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

// pair is a prefill and a decode server.
type pair struct {
	t               *testing.T
	fleet           *Fleet
	prefill, decode *Server
}

func startPair(t *testing.T, change func(*ServerOptions)) *pair {
	t.Helper()
	o := fast()
	if change != nil {
		change(&o)
	}
	f, err := New(Options{Servers: []ServerOptions{o, o}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		f.Stop(ctx)
	})
	return &pair{t, f, f.Servers()[0], f.Servers()[1]}
}

type answered struct {
	status  int
	body    string
	Choices []struct {
		Text         string
		FinishReason string          `json:"finish_reason"`
		KVMetadata   json.RawMessage `json:"kv_metadata"`
	}
	KV json.RawMessage `json:"kv_transfer_params"`
}

func (p *pair) ask(s *Server, body string, header ...string) answered {
	p.t.Helper()
	req, _ := http.NewRequestWithContext(p.t.Context(), http.MethodPost, s.URL()+"/v1/completions",
		strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, _ := io.ReadAll(resp.Body)
	a := answered{status: resp.StatusCode, body: string(all)}
	if resp.StatusCode == 200 {
		if err := json.Unmarshal(all, &a); err != nil {
			p.t.Fatalf("%v: %s", err, all)
		}
	}
	return a
}

func (p *pair) waitFor(what string, ok func() bool) {
	p.t.Helper()
	eventually.Is(p.t, what, ok)
}

// held is how many caches the prefill server keeps, awaited how many it is
// waited for.
func (p *pair) held() (n int) {
	p.prefill.engine.With(func(machine.Time) { n = p.prefill.engine.Core.Holds() })
	return n
}

func (p *pair) awaited() (n int) {
	p.prefill.engine.With(func(machine.Time) { n = p.prefill.engine.Core.Awaited() })
	return n
}

const remoteDecode = `"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,` +
	`"remote_block_ids":null,"remote_engine_id":null,"remote_host":null,"remote_port":null,"sentinel":{"x":[1]}}`

func TestPrefillAndDecode(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*ServerOptions){"independent": nil, "continuous": func(o *ServerOptions) {
		*o = batched()
		o.Engine.BlockSize = 16
	}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefillAndDecode(t, startPair(t, change))
		})
	}
}

func prefillAndDecode(t *testing.T, p *pair) {
	pre := p.ask(p.prefill, `{"prompt":"Some long prompt that is prefilled elsewhere","max_tokens":1,`+remoteDecode+`}`,
		"X-Request-Id", "r")
	var kv struct {
		DoRemotePrefill bool   `json:"do_remote_prefill"`
		EngineID        string `json:"remote_engine_id"`
		Blocks          []int  `json:"remote_block_ids"`
		Host            string `json:"remote_host"`
		Port            int    `json:"remote_port"`
		TP              int    `json:"tp_size"`
		Sentinel        any    `json:"sentinel"`
	}
	if err := json.Unmarshal(pre.KV, &kv); err != nil || !kv.DoRemotePrefill || kv.EngineID == "" ||
		len(kv.Blocks) != 1 || kv.Host == "" || kv.Port == 0 || kv.TP != 1 || kv.Sentinel == nil {
		t.Fatalf("%v %s", err, pre.body)
	}
	if p.held() != 1 || pre.Choices[0].FinishReason != "length" {
		t.Fatalf("%d held, %s", p.held(), pre.body)
	}
	// The same request id again, while its blocks are held.
	p.ask(p.prefill, `{"prompt":"Some other prompt","max_tokens":1}`, "X-Request-Id", "r")
	nested := strings.Replace(string(pre.KV), `"remote_block_ids":[`, `"remote_block_ids":[[`, 1)
	nested = strings.Replace(nested, `],"remote_engine_id"`, `]],"remote_engine_id"`, 1)
	dec := p.ask(p.decode, `{"prompt":"Some long prompt that is prefilled elsewhere","max_tokens":4,`+
		`"kv_transfer_params":`+nested+`}`)
	if dec.status != 200 || dec.Choices[0].Text == "" {
		t.Fatal(dec.body)
	}
	p.waitFor("the prefill server's blocks are free", func() bool { return p.held() == 0 })
	if said(t, p.decode, saidMoved) != 1 || said(t, p.decode, saidBytes) == 0 || said(t, p.decode, saidPosted) != 1 ||
		said(t, p.decode, saidBlocks) < 1 {
		t.Fatalf("%v transfers of %v bytes", said(t, p.decode, saidMoved), said(t, p.decode, saidBytes))
	}
	// What was released cannot be fetched again.
	if again := p.ask(p.decode,
		`{"prompt":"x","max_tokens":4,"kv_transfer_params":`+string(pre.KV)+`}`); again.status != 500 {
		t.Fatal(again.body)
	}
}

func TestFalseHandoffs(t *testing.T) {
	t.Parallel()
	for policy, want := range map[engine.KVLoadFailure]int{engine.KVLoadFail: 500, engine.KVLoadRecompute: 200} {
		p := startPair(t, func(o *ServerOptions) { o.Engine.KVLoadFailure = policy })
		pre := p.ask(p.prefill, `{"prompt":"Some long prompt","max_tokens":1,`+remoteDecode+`}`)
		for name, change := range map[string]func(map[string]any){
			"another engine": func(m map[string]any) { m["remote_engine_id"] = "nobody" },
			"other blocks":   func(m map[string]any) { m["remote_block_ids"] = []int{99, 100} },
			"nobody listens": func(m map[string]any) { m["remote_port"] = 1 },
		} {
			var m map[string]any
			_ = json.Unmarshal(pre.KV, &m)
			change(m)
			raw, _ := json.Marshal(m)
			if a := p.ask(p.decode, `{"prompt":"Some long prompt","max_tokens":2,"kv_transfer_params":`+
				string(raw)+`}`); a.status != want {
				t.Errorf("%s under %v: %d %s", name, policy, a.status, a.body)
			}
		}
		if a := p.ask(p.decode, `{"prompt":"Some long prompt","max_tokens":2,"kv_transfer_params":`+string(pre.KV)+`}`,
			modelserver.FaultHeader, "lose-kv"); a.status != want {
			t.Errorf("lost transfer under %v: %d %s", policy, a.status, a.body)
		}
	}
}

// Blocks that nobody fetches are free when their time is up.
func TestHandoffExpires(t *testing.T) {
	t.Parallel()
	p := startPair(t, func(o *ServerOptions) { o.Engine.KVHoldTimeout = 20 * machine.Millisecond })
	p.ask(p.prefill, `{"prompt":"Some long prompt","max_tokens":1,`+remoteDecode+`}`)
	p.waitFor("the blocks are free", func() bool { return p.held() == 0 })
	if said(t, p.prefill, saidExpired) != 1 {
		t.Fatalf("%v expired", said(t, p.prefill, saidExpired))
	}
}

// Document 002: kv_metadata out, kv_handle in.
func TestDocumentHandoff(t *testing.T) {
	t.Parallel()
	p := startPair(t, nil)
	for _, stream := range []string{"", `,"stream":true`} {
		pre := p.ask(p.prefill, `{"prompt":"Hello!","max_tokens":1,"session_id":"s1","return_kv_metadata":true}`)
		var meta struct {
			Session string `json:"session_id"`
			Handle  string `json:"kv_handle"`
			Tokens  int    `json:"tokens_processed"`
		}
		if err := json.Unmarshal(pre.Choices[0].KVMetadata, &meta); err != nil || meta.Session != "s1" ||
			meta.Tokens != 2 {
			t.Fatalf("%v %s", err, pre.body)
		}
		for _, more := range []string{`"continue_from":" hi"`,
			`"new_messages":[{"role":"user","content":"What's 2+2?"}]`} {
			body := `{"kv_handle":` + strconvQuote(meta.Handle) + `,` + more + `,"max_tokens":3` + stream + `}`
			resp, err := http.Post(p.decode.URL()+"/v1/chat/completions", wire.JSON, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			all, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Fatalf("%s: %s", body, all)
			}
		}
		p.waitFor("the prefill server's blocks are free", func() bool { return p.held() == 0 })
	}
}

func strconvQuote(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw)
}
