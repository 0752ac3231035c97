package program

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// windtunnel sidecar under document 003's own launch line, before a decode
// server.
func TestSidecarAlone(t *testing.T) {
	decode := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "decoded "+r.URL.Path)
	}))
	defer decode.Close()
	u, err := url.Parse(decode.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	read, write := io.Pipe()
	o := theOutside()
	o.Stdout, o.Stderr, o.Terminal = &bytes.Buffer{}, write, false
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, interrupt }
	code := make(chan int, 1)
	go func() {
		code <- run([]string{"sidecar", "-port=0", "-vllm-port=" + u.Port(), "-connector=nixlv2", "-enable-ssrf-protection=false", "-secure-proxy=false", "-v=1"}, o)
		write.Close()
	}()
	lines := bufio.NewScanner(read)
	var address string
	for address == "" && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "windtunnel sidecar:") {
			address = regexp.MustCompile(`http://\S+`).FindString(lines.Text())
		}
	}
	if address == "" {
		t.Fatalf("it did not become ready: exit code %d", <-code)
	}
	resp, err := http.Post(address+"/v1/chat/completions", "application/json", strings.NewReader(`{"messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(body) != "decoded /v1/chat/completions" || resp.Header.Get("X-Decode-Time-Ms") == "" {
		t.Errorf("%s %v", body, resp.Header)
	}
	http.DefaultClient.CloseIdleConnections()
	interrupt()
	if _, err := io.Copy(io.Discard, read); err != nil {
		t.Error(err)
	}
	if got := <-code; got != 0 {
		t.Errorf("exit code %d", got)
	}
}
