package sidecar

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/bench/internal/child"
	"github.com/windtunnel/windtunnel/live/sidecar"
)

// An answer has several chunks, one per pace, far enough apart that no reader gets two at once.
const (
	chunks = 100
	pace   = 8 * time.Millisecond
)

var chunk = []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",` +
	`"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n")

func TestMain(m *testing.M) { child.Main(m, play) }

// play serves a role.
func play(role, upstream string) ([]string, error) {
	if role == "sidecar" {
		// It logs as `windtunnel sidecar` does without flags.
		s, err := sidecar.Start(
			sidecar.Options{Listen: "127.0.0.1:0", Decoder: upstream,
				Log: slog.New(slog.NewJSONHandler(io.Discard, nil))})
		if err != nil {
			return nil, err
		}
		return []string{s.Addr()}, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	handler := http.Handler(http.HandlerFunc(serve))
	if strings.HasPrefix(role, "plain") {
		way := &http.Transport{MaxIdleConnsPerHost: 1024}
		p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream})
		p.FlushInterval = -1
		p.Transport = way
		if handler = inMemory(p, nil); role == "plain-pd" {
			handler = inMemory(p, &http.Client{Transport: way})
		}
	}
	go func() { _ = http.Serve(l, handler) }()
	return []string{l.Addr().String()}, nil
}

// inMemory reads bodies before the plain proxy gets them. With other bodies, the proxy breaks connections under this
// load (see live/sidecar), and no comparison would be possible. With a prefill client, it sends a prefill leg first.
func inMemory(next http.Handler, prefill *http.Client) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if prefill != nil {
			if text, err = prefilled(prefill, r, text); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			r.ContentLength = int64(len(text))
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		next.ServeHTTP(w, r)
	})
}

// prefilled calls the prefill server and returns the decode server's request.
func prefilled(client *http.Client, r *http.Request, text []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	leg := maps.Clone(fields)
	leg["max_tokens"], leg["stream"] = json.RawMessage("1"), json.RawMessage("false")
	leg["kv_transfer_params"] = json.RawMessage(
		`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,` +
			`"remote_host":null,"remote_port":null}`)
	text, err := json.Marshal(leg)
	if err != nil {
		return nil, err
	}
	resp, err := client.Post("http://"+r.Header.Get("x-prefiller-host-port")+r.URL.Path, "application/json",
		bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(resp.Body); err != nil {
		return nil, err
	}
	var first struct {
		KV json.RawMessage `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(text, &first); err != nil {
		return nil, err
	}
	fields["kv_transfer_params"] = first.KV
	return json.Marshal(fields)
}

// answer is an answer that is not streamed.
var answer = []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,` +
	`"message":{"role":"assistant","content":"Because of the air."},"finish_reason":"stop"}],` +
	`"usage":{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17}}`)

// serve streams, answers in one piece, or answers a prefill leg.
func serve(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch {
	case bytes.Contains(text, []byte(`"do_remote_decode":true`)):
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[],"kv_transfer_params":{"remote_engine_id":"e"}}`)
		return
	case !bytes.Contains(text, []byte(`"stream":true`)):
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for range chunks {
		if _, err := w.Write(chunk); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		<-tick.C
	}
}
