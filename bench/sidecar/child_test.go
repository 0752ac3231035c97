package sidecar

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/bench/internal/child"
	"github.com/windtunnel/windtunnel/live/sidecar"
)

// chunks of an answer, one each pace: far enough apart that no reader sees two
// at once.
const (
	chunks = 100
	pace   = 8 * time.Millisecond
)

var chunk = []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n")

func TestMain(m *testing.M) { child.Main(m, play) }

// play serves a role.
func play(role, upstream string) ([]string, error) {
	if role == "sidecar" {
		s, err := sidecar.Start(sidecar.Options{Listen: "127.0.0.1:0", Decoder: upstream})
		if err != nil {
			return nil, err
		}
		return []string{s.Addr()}, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	handler := http.Handler(http.HandlerFunc(answer))
	if role == "plain" {
		p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream})
		p.FlushInterval = -1
		p.Transport = &http.Transport{MaxIdleConnsPerHost: 1024}
		handler = inMemory(p)
	}
	go func() { _ = http.Serve(l, handler) }()
	return []string{l.Addr().String()}, nil
}

// inMemory gives the plain proxy bodies that are read already: with others it
// breaks connections under this load (see live/sidecar), and there would be
// nothing to compare with.
func inMemory(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		next.ServeHTTP(w, r)
	})
}

// answer streams, or answers a prefill leg.
func answer(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if bytes.Contains(text, []byte(`"do_remote_decode":true`)) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[],"kv_transfer_params":{"remote_engine_id":"e"}}`)
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
