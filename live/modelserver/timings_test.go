package modelserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// lines is a log that several write to.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Document 003's response headers report a request's times: a whole answer has all of them in its head, and a streamed
// one has the known ones there and the rest behind it. The server's own metrics report the same time for a KV cache's
// transfer. The lines that people grep for in a server's log, and the side channel's answer to them, are there.
func TestDocumentTimings(t *testing.T) {
	t.Parallel()
	var log lines
	o := fast()
	o.TimingHeaders, o.SideChannel = true, "127.0.0.1:0"
	f, err := New(Options{Servers: []ServerOptions{o, o}, Seed: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		f.Stop(ctx)
	})
	p := &pair{t, f, f.Servers()[0], f.Servers()[1]}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	send := func(s *Server, body string) (head, trailer http.Header, text string) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/v1/completions",
			strings.NewReader(body))
		req.Header.Set("TE", "trailers")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		all, _ := io.ReadAll(resp.Body)
		return resp.Header, resp.Trailer, string(all)
	}
	number := func(h http.Header, name string) float64 {
		v, err := strconv.ParseFloat(h.Get(name), 64)
		if err != nil || v <= 0 {
			t.Errorf("%s: %q", name, h.Get(name))
		}
		return v
	}

	head, _, _ := send(p.decode, `{"prompt":"a b c","max_tokens":8,"ignore_eos":true}`)
	tokens, decode := number(head, tokensHeader), number(head, decodeTimeHeader)
	if sum := number(head, prefillTimeHeader) + decode; tokens != 8 || sum < number(head, totalTimeHeader)-.01 ||
		sum > number(head, totalTimeHeader)+.01 {
		t.Errorf("%v", head)
	}
	if rate := number(head, tokensPerSecondHeader); rate < 1000*tokens/decode-1 || rate > 1000*tokens/decode+1 ||
		head.Get("X-Kv-Transfer-Time-Ms") != "" {
		t.Errorf("%v", head)
	}

	head, trailer, _ := send(p.decode, `{"prompt":"a b c","max_tokens":8,"ignore_eos":true,"stream":true}`)
	number(head, prefillTimeHeader)
	if head.Get(decodeTimeHeader) != "" || number(trailer, tokensHeader) != 8 ||
		number(trailer, decodeTimeHeader) > number(trailer, totalTimeHeader) {
		t.Errorf("%v, %v", head, trailer)
	}

	pre := p.ask(p.prefill, `{"prompt":"Some long prompt that is prefilled elsewhere","max_tokens":1,`+remoteDecode+`}`)
	for _, stream := range []bool{false, true} {
		if stream {
			pre = p.ask(p.prefill, `{"prompt":"Another long prompt that is prefilled elsewhere","max_tokens":1,`+
				remoteDecode+`}`)
		}
		before := said(t, p.decode, saidSeconds)
		head, _, text := send(p.decode,
			fmt.Sprintf(`{"prompt":"x","max_tokens":40,"ignore_eos":true,"stream":%v,"kv_transfer_params":%s}`, stream,
				pre.KV))
		took, counted := number(head, "X-Kv-Transfer-Time-Ms"), 1e3*(said(t, p.decode, saidSeconds)-before)
		if took < counted-.01 || took > counted+.01 {
			t.Errorf("stream %v: the header says %v ms, the metrics %v: %s", stream, took, counted, text)
		}
	}
	for _, want := range []string{`msg="Loading model"`, `msg="NIXL side channel listens"`,
		`msg="NIXL side channel asked"`, `msg="NIXL KV transfer done"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s: %s", want, log.String())
		}
	}
	host, port, err := p.prefill.kv.Address()
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get(fmt.Sprintf("http://%s:%d", host, port))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var who struct {
		EngineID string `json:"engine_id"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&who); err != nil || who.EngineID == "" ||
		resp.StatusCode != http.StatusOK {
		t.Errorf("curl at the side channel: %v %+v", err, who)
	}
}
