package program

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/internal/exit"
)

// A live run's page shows the run, sends a request through Envoy, causes an incident, which is an event, and applies
// another weight.
func TestRunPage(t *testing.T) {
	t.Parallel()
	out := &locked{}
	o := console.New()
	o.Stdout, o.Stderr, o.Terminal, o.Columns = out, out, false, 0
	ctx, stop := context.WithCancel(context.Background())
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, stop }
	code := make(chan int, 1)
	go func() { code <- run([]string{"run", "../../../examples/ci.yaml", "--ui", "-n", "20"}, o) }()
	defer stop()
	link := regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=[0-9a-f]{32}`)
	for !strings.Contains(out.String(), "summary    20 requests") {
		select {
		case c := <-code:
			t.Fatalf("the run ended with %d:\n%s", c, out.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	at, err := url.Parse(link.FindString(out.String()))
	if err != nil || at.Host == "" {
		t.Fatalf("no link to the page:\n%s", out.String())
	}
	own := "http://" + at.Host
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar}
	get := func(path string) string {
		resp, err := browser.Get(own + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s: %s", path, resp.Status, text)
		}
		return string(text)
	}
	post := func(path, body string, want int) string {
		r, _ := http.NewRequest(http.MethodPost, own+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", own)
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != want {
			t.Fatalf("%s %s: got %s, expected %d: %s", path, body, resp.Status, want, text)
		}
		return string(text)
	}
	get("/?" + at.RawQuery)
	var meta struct {
		Mode    string
		WhatIf  bool
		Gateway string
		Do      []struct{ Name string }
		Pools   []struct {
			Groups []struct{ Endpoints []string }
		}
	}
	if err := json.Unmarshal([]byte(get("/data/meta")), &meta); err != nil || meta.Mode != "live" || !meta.WhatIf ||
		len(meta.Do) < 3 || len(meta.Pools) == 0 {
		t.Fatalf("%v: %+v", err, meta)
	}
	if steps := get("/data/request?id=7"); !strings.Contains(steps, `"request":"req-`) ||
		!strings.Contains(steps, `"explanation"`) {
		t.Errorf("the steps of a request: %.500s", steps)
	}
	if told := post("/data/whatif", `{"request":"7"}`, http.StatusOK); !strings.Contains(told,
		`"decisions":20,"moved":0`) || !strings.Contains(told, `"was":{`) {
		t.Errorf("the recorded configuration decides otherwise: %.600s", told)
	}
	if told := post("/data/do",
		`{"name":"send","path":"/v1/chat/completions","body":"{\"model\":\"llama-3.1-8b\",\"max_tokens\":2,`+
			`\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"}`, http.StatusOK); !strings.Contains(told,
		"200 OK") {
		t.Errorf("a request by hand: %.300s", told)
	}
	post("/data/do", `{"name":"crash","server":99}`, http.StatusUnprocessableEntity)
	post("/data/do", `{"name":"restart-epp","server":0}`, http.StatusOK)
	post("/data/do", `{"name":"load","number":50,"for":0.2}`, http.StatusOK)
	resp, err := browser.Get(own + "/data/stream")
	if err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() && !(strings.Contains(seen.String(), `"step":"incident_began"`) &&
		strings.Contains(seen.String(), `"step":"acted"`)) {
		seen.WriteString(lines.Text())
	}
	resp.Body.Close()
	stop()
	if c := <-code; c != 0 && c != int(exit.Failed) { // the scenario's expectations of time are not for a busy machine
		t.Errorf("exit code %d:\n%s", c, out.String())
	}
}

// The page of manifests shows the requests that pickers and servers see.
func TestUpPage(t *testing.T) {
	t.Parallel()
	out := &locked{}
	o := console.New()
	o.Stdout, o.Stderr, o.Terminal, o.Columns = out, out, false, 0
	ctx, stop := context.WithCancel(context.Background())
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, stop }
	code := make(chan int, 1)
	manifests := t.TempDir()
	if err := os.CopyFS(manifests, os.DirFS("../../../examples/manifests/document-002")); err != nil {
		t.Fatal(err)
	}
	go func() {
		code <- run([]string{"up", "-f", manifests, "--ui", "--output", "json"}, o)
	}()
	defer stop()
	link := regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=[0-9a-f]{32}`)
	for !link.MatchString(out.String()) {
		select {
		case c := <-code:
			t.Fatalf("it ended with %d:\n%s", c, out.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	gateway := regexp.MustCompile(`"url":"(http://[^"]+)"`).FindStringSubmatch(out.String())
	if gateway == nil {
		t.Fatalf("no gateway: %s", out.String())
	}
	at, _ := url.Parse(link.FindString(out.String()))
	r, _ := http.NewRequest(http.MethodPost, gateway[1]+"/default/my-llm/v1/chat/completions",
		strings.NewReader(`{"model":"llama-3-8b","max_tokens":2,"messages":[{"role":"user","content":"hi"}]}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Request-Id", "by-hand-1")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(resp.Body)
	answered := resp.Status
	resp.Body.Close()
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar}
	own := "http://" + at.Host
	if resp, err = browser.Get(at.String()); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	var text []byte
	eventually.Is(t, "the page to have the request's end", func() bool {
		if resp, err = browser.Get(own + "/data/request?id=by-hand-1"); err != nil {
			t.Fatal(err)
		}
		text, _ = io.ReadAll(resp.Body)
		resp.Body.Close()
		return strings.Contains(string(text), `"hop":"epp","step":"response_end_seen"`) &&
			strings.Contains(string(text), `"hop":"server"`) && strings.Contains(string(text), `"hop":"envoy"`)
	})
	if !strings.Contains(string(text), `"step":"response_end_seen"`) ||
		!strings.Contains(string(text), `"hop":"server"`) || !strings.Contains(string(text), `"route":"`) {
		t.Errorf("the request on the page: %.800s\nanswered: %s %.300s\n%s", text, answered, answer, out.String())
	}
	stream, err := browser.Get(own + "/data/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	lines.Buffer(nil, 1<<22)
	until := func(words ...string) {
		t.Helper()
		for lines.Scan() {
			words = slices.DeleteFunc(words, func(w string) bool { return strings.Contains(lines.Text(), w) })
			if len(words) == 0 {
				return
			}
		}
		t.Fatalf("the page was not told %q: %v\n%s", words, lines.Err(), out.String())
	}
	edit := func(was, is string) {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(manifests, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), was) {
				if err := os.WriteFile(name, []byte(strings.Replace(string(text), was, is, 1)), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
		t.Fatalf("no manifest has %q", was)
	}
	until(`"step":"server_ready"`)
	edit("replicas: 3", "replicas: 4")
	until(`"step":"config_applied"`, `"step":"server_started"`)
	edit("replicas: 4", "replicas: 2")
	until(`"step":"server_leaving"`, `"step":"server_gone"`)
	edit("replicas: 2", "replicas: many")
	until(`"step":"config_refused"`)
	stop()
	if c := <-code; c != 0 {
		t.Errorf("exit code %d:\n%s", c, out.String())
	}
}
