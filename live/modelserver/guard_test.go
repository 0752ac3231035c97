package modelserver

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/internal/tlsfiles"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	o := fast()
	o.APIKeys = []string{"one", "two"}
	o.PodName, o.PodNamespace = "pod-1", "default"
	o.RequestIDHeaders = true
	b := start(t, o)
	for key, want := range map[string]int{"": 401, "Bearer three": 401, "two": 401, "Bearer two": 200} {
		resp, body := b.post("/v1/completions", `{"prompt":"x","max_tokens":1}`, "Authorization", key, "X-Request-Id",
			"r9")
		if resp.StatusCode != want {
			t.Errorf("%q: %d %s", key, resp.StatusCode, body)
		}
		if resp.Header.Get("X-Inference-Pod") != "pod-1" || resp.Header.Get("X-Inference-Port") == "" {
			t.Errorf("headers %v", resp.Header)
		}
		if want == 200 && resp.Header.Get("X-Request-Id") != "r9" {
			t.Errorf("request id %q", resp.Header.Get("X-Request-Id"))
		}
	}
	if resp, err := b.Get(b.URL() + "/health"); err != nil || resp.StatusCode != 200 {
		t.Errorf("health needs no key: %v", err)
	} else {
		resp.Body.Close()
	}
}

func TestStartupDelay(t *testing.T) {
	t.Parallel()
	o := fast()
	o.StartupDelay = time.Hour
	b := start(t, o)
	resp, err := b.Get(b.URL() + "/health/ready")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
}

// TLS serves both protocols.
func TestTLS(t *testing.T) {
	t.Parallel()
	config, err := tlsfiles.SelfSigned(nil, "h2", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	o := fast()
	o.TLS = config
	b := start(t, o)
	for _, h2 := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: h2}
		resp, err := (&http.Client{Transport: transport}).Get(b.URL() + "/v1/models")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		transport.CloseIdleConnections()
		if resp.StatusCode != 200 || (resp.ProtoMajor == 2) != h2 {
			t.Fatalf("%d over %s", resp.StatusCode, resp.Proto)
		}
	}
}

// A conversation keeps its messages, and a response continues from them.
func TestConversation(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	_, body := b.post("/v1/conversations", `{"metadata":{"topic":"wind"},"items":[{"role":"user","content":"Hello"}]}`)
	var c struct {
		ID       string
		Metadata map[string]string
	}
	if err := json.Unmarshal([]byte(body), &c); err != nil || !strings.HasPrefix(c.ID, "conv_") ||
		c.Metadata["topic"] != "wind" {
		t.Fatalf("%v %s", err, body)
	}
	_, first := b.post("/v1/responses", `{"input":"And?","conversation":"`+c.ID+`","max_output_tokens":2}`)
	_, second := b.post("/v1/responses", `{"input":"And?","conversation":{"id":"`+c.ID+`"},"max_output_tokens":2}`)
	tokensOf := func(s string) float64 {
		var r struct {
			Usage struct{ Input_tokens float64 }
		}
		if err := json.Unmarshal([]byte(s), &r); err != nil {
			t.Fatal(err, s)
		}
		return r.Usage.Input_tokens
	}
	if tokensOf(second) <= tokensOf(first) {
		t.Fatalf("the second turn does not see the first: %s\n%s", first, second)
	}
	get := func(method, path string) (int, string) {
		req, _ := http.NewRequest(method, b.URL()+path, nil)
		resp, err := b.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		all, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(all)
	}
	_, items := get("GET", "/v1/conversations/"+c.ID+"/items?order=asc&limit=2")
	var list struct {
		Data    []struct{ ID, Type, Role string }
		HasMore bool `json:"has_more"`
	}
	if err := json.Unmarshal([]byte(items), &list); err != nil || len(list.Data) != 2 || !list.HasMore ||
		list.Data[0].Role != "user" {
		t.Fatalf("%v %s", err, items)
	}
	item := "/v1/conversations/" + c.ID + "/items/" + list.Data[0].ID
	if status, _ := get("GET", item); status != 200 {
		t.Fatal(status)
	}
	get("DELETE", item)
	if status, _ := get("GET", item); status != 404 {
		t.Fatal(status)
	}
	get("DELETE", "/v1/conversations/"+c.ID)
	if status, _ := get("GET", "/v1/conversations/"+c.ID); status != 404 {
		t.Fatal(status)
	}
}

// The side channel hangs up on who does not speak its language.
func TestSideChannelHostile(t *testing.T) {
	t.Parallel()
	o := fast()
	o.SideChannel = "127.0.0.1:0"
	b := start(t, o)
	host, port, err := b.kv.Address()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"GET / HTTP/1.1\r\n\r\n", "{}\n", `{"op":"release"}` + "\n",
		`{"op":"get","engine_id":"x","block_ids":[1]}` + "\n", "[1\n"} {
		conn, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, line)
		_ = conn.(*net.TCPConn).CloseWrite() // what is cut off is not waited for
		all, err := io.ReadAll(conn)
		conn.Close()
		if err != nil || strings.Contains(string(all), `"ok":true`) {
			t.Errorf("%q: %v %s", line, err, all)
		}
	}
}
