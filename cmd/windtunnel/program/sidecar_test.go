package program

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
)

// windtunnel sidecar runs with document 002's connector and document 003's own command line, and with the pool from its
// environment, in front of a decode server.
func TestSidecarAlone(t *testing.T) {
	decode := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "decoded "+r.URL.Path)
	}))
	defer decode.Close()
	u, err := url.Parse(decode.URL)
	if err != nil {
		t.Fatal(err)
	}
	objects := t.TempDir()
	if err := os.WriteFile(filepath.Join(objects, "pool.yaml"), []byte(`
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: llama-pool, namespace: llm-d}
spec: {selector: {matchLabels: {app: vllm}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: epp, port: {number: 9002}}}
---
apiVersion: v1
kind: Pod
metadata: {name: prefill-0, namespace: llm-d, labels: {app: vllm}}
status: {podIP: 127.0.0.1, conditions: [{type: Ready, status: "True"}]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	read, write := io.Pipe()
	o := console.New()
	o.Stdout, o.Stderr, o.Terminal = &bytes.Buffer{}, write, false
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, interrupt }
	environment := map[string]string{"INFERENCE_POOL_NAMESPACE": "llm-d", "INFERENCE_POOL_NAME": "llama-pool",
		"WINDTUNNEL_OBJECTS": objects}
	o.Env = func(name string) (string, bool) { v, ok := environment[name]; return v, ok }
	code := make(chan int, 1)
	go func() {
		code <- run([]string{"sidecar", "-port=0", "-vllm-port=" + u.Port(), "-connector=tcp",
			"-enable-ssrf-protection=true", "-secure-proxy=false", "-v=1"}, o)
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
	req, err := http.NewRequest(http.MethodPost, address+"/v1/chat/completions", strings.NewReader(`{"messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-prefiller-host-port", "127.0.0.1:"+u.Port())
	if resp, err = http.DefaultClient.Do(req); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a server outside the pool as prefiller: %s", resp.Status)
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
