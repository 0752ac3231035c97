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

// begun starts a command that stays until stop.
func begun(args ...string) (out *locked, code chan int, stop func()) {
	out, code = &locked{}, make(chan int, 1)
	o := console.New()
	o.Stdout, o.Stderr, o.Terminal, o.Columns = out, out, false, 0
	ctx, stop := context.WithCancel(context.Background())
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, stop }
	go func() { code <- run(args, o) }()
	return out, code, stop
}

// await waits until a command has printed the words.
func (l *locked) await(t *testing.T, code chan int, words string) {
	t.Helper()
	for !strings.Contains(l.String(), words) {
		select {
		case c := <-code:
			t.Fatalf("the command ended with %d:\n%s", c, l.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// link returns the address of a command's page.
func (l *locked) link(t *testing.T, code chan int) *url.URL {
	t.Helper()
	l.await(t, code, "?token=")
	at, err := url.Parse(regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=[0-9a-f]{32}`).FindString(l.String()))
	if err != nil || at.Host == "" {
		t.Fatalf("no link to the page:\n%s", l.String())
	}
	return at
}

// The page of a recording has the name of its file, and judges requests by the SLO of the recorded run.
func TestReplayPage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "yesterday.ndjson.gz")
	o := console.New()
	o.Stdout, o.Stderr = io.Discard, io.Discard
	if c := run([]string{"sim", "-n", "5", "--set", "workload.slo.ttft=1us", "--record", file}, o); c != 0 {
		t.Fatalf("exit code %d", c)
	}
	out, code, stop := begun("replay", file, "--ui")
	defer stop()
	out.await(t, code, "The page stays")
	at := out.link(t, code)
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar}
	for _, path := range []string{at.RequestURI(), "/data/stream"} {
		resp, err := browser.Get("http://" + at.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<22)
		for path == "/data/stream" && lines.Scan() {
			if text := lines.Text(); strings.Contains(text, `"meta":`) &&
				!strings.Contains(text, `"file":"yesterday.ndjson.gz"`) {
				t.Errorf("the description has not the name of the file: %s", text)
			} else if strings.Contains(text, `"metrics":`) {
				if !strings.Contains(text, `"outcomes":{"completed":`) || strings.Contains(text, `"good":`) {
					t.Errorf("a first token within 1 us: %s", text)
				}
				break
			}
		}
	}
}

// A live run's page shows the run, sends a request through Envoy, causes an incident, which is an event, and applies
// another weight.
func TestRunPage(t *testing.T) {
	t.Parallel()
	out, code, stop := begun("run", "../../../examples/ci.yaml", "--ui", "-n", "20")
	defer stop()
	out.await(t, code, "summary    20 requests")
	at := out.link(t, code)
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
		File    string
		Own     bool
		WhatIf  bool
		Gateway string
		Do      []struct{ Name string }
		Pools   []struct {
			Groups []struct{ Endpoints []string }
		}
	}
	if err := json.Unmarshal([]byte(get("/data/meta")), &meta); err != nil || meta.Mode != "live" || !meta.WhatIf ||
		!meta.Own || meta.File != "ci.yaml" ||
		len(meta.Do) < 3 || len(meta.Pools) == 0 {
		t.Fatalf("%v: %+v", err, meta)
	}
	if steps := get("/data/request?id=7"); !strings.Contains(steps, `"request":"req-`) ||
		!strings.Contains(steps, `"explanation"`) {
		t.Errorf("the steps of a request: %.500s", steps)
	}
	if answer := post("/data/whatif", `{"request":"7"}`, http.StatusOK); !strings.Contains(answer,
		`"decisions":20,"moved":0`) || !strings.Contains(answer, `"was":{`) {
		t.Errorf("the recorded configuration decides otherwise: %.600s", answer)
	}
	if answer := post("/data/do",
		`{"name":"send","path":"/v1/chat/completions","body":"{\"model\":\"llama-3.1-8b\",\"max_tokens\":2,`+
			`\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"}`, http.StatusOK); !strings.Contains(answer,
		"200 OK") {
		t.Errorf("a request by hand: %.300s", answer)
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
	manifests := t.TempDir()
	if err := os.CopyFS(manifests, os.DirFS("../../../examples/manifests/document-002")); err != nil {
		t.Fatal(err)
	}
	out, code, stop := begun("up", "-f", manifests, "--ui", "--output", "json")
	defer stop()
	at := out.link(t, code)
	gateway := regexp.MustCompile(`"url":"(http://[^"]+)"`).FindStringSubmatch(out.String())
	if gateway == nil {
		t.Fatalf("no gateway: %s", out.String())
	}
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
