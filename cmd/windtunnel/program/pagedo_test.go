package program

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/chromium"
)

// browsing is the page of a live run in a browser.
type browsing struct {
	t   *testing.T
	ctx context.Context
	out *locked
}

// browse runs a scenario until its requests have ended, and opens its page.
func browse(t *testing.T, text string) *browsing {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := &locked{}
	o := console.New()
	o.Stdout, o.Stderr, o.Terminal, o.Columns = out, out, false, 0
	ctx, stop := context.WithCancel(context.Background())
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, stop }
	code := make(chan int, 1)
	go func() { code <- run([]string{"run", file, "--ui"}, o) }()
	t.Cleanup(func() {
		stop()
		if c := <-code; c != 0 {
			t.Errorf("exit code %d:\n%s", c, out.String())
		}
	})
	for !strings.Contains(out.String(), "The page stays") && !strings.Contains(out.String(), "summary ") {
		select {
		case c := <-code:
			code <- c
			t.Fatalf("the run ended with %d:\n%s", c, out.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	allocated, end, err := chromium.Allocate(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	tab, closed := chromedp.NewContext(allocated)
	t.Cleanup(closed)
	tab, cancel := context.WithTimeout(tab, 2*time.Minute)
	t.Cleanup(cancel)
	b := &browsing{t, tab, out}
	if err := chromedp.Do(tab, chromedp.EmulateViewport(1500, 1000),
		chromedp.Navigate(regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=[0-9a-f]{32}`).FindString(out.String())+
			"#do")); err != nil {
		t.Fatal(err)
	}
	return b
}

// reads waits until words can be read somewhere.
func (b *browsing) reads(selector, words string) {
	b.t.Helper()
	b.waits(words, chromium.Shows(selector, words))
}

func (b *browsing) clicks(selector string) {
	b.t.Helper()
	b.waits(selector, chromium.Click(selector))
}

func (b *browsing) waits(what string, a chromedp.Action[bool]) {
	b.t.Helper()
	if _, err := chromedp.Run(b.ctx, a); err != nil {
		body, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.innerText`))
		b.t.Fatalf("%q: %v\nthe page:\n%s\n%s", what, err, body, b.out.String())
	}
}

// does fills in an action's form, by the names of its fields, and submits it. Then the answer appears in the form, and
// event in the list of events.
func (b *browsing) does(name string, fields map[string]string, answer, event string) {
	b.t.Helper()
	form := fmt.Sprintf(`//form[h3="%s"]`, name)
	for label, value := range fields {
		if _, err := chromedp.Run(b.ctx,
			chromedp.SendKeys(fmt.Sprintf(`%s//label[starts-with(., "%s")]/*`, form, label), value)); err != nil {
			b.t.Fatalf("%s, %s: %v", name, label, err)
		}
	}
	b.clicks(form + `//button`)
	b.reads(fmt.Sprintf(`form[data-act="%s"]`, strings.ReplaceAll(name, " ", "-")), answer)
	b.reads(".do > ul", event)
}

func (b *browsing) shows(view string) {
	b.t.Helper()
	b.clicks(fmt.Sprintf(`nav a[href="#%s"]`, view))
}

// The page adds and drains servers, and changes the time of prompts.
func TestPageDoesServers(t *testing.T) {
	t.Parallel()
	b := browse(t, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools: [{name: chat, replicas: 2, modelServer: {batching: independent, prefill: 1ms}, lifecycle: {startup: 10ms}}]
workload: {requests: 4}
`)
	b.does("prefill", map[string]string{"seconds, from": "0.001", "to": "0.002"}, "A prompt takes 1ms to 2ms",
		"from=1ms to=2ms")
	b.does("add server", map[string]string{"servers": "1"}, "It has happened", "server ready")
	b.shows("flow")
	b.reads(".servers h2", "3")
	b.shows("do")
	b.does("add server", map[string]string{"servers": "5"},
		"found 5 servers to add to 3; expected at most 1", "server ready")
	b.does("drain server", nil, "It has happened", "server gone")
	b.shows("flow")
	b.reads(".servers h2", "2")
}

// The page causes every incident, and shows the effects.
func TestPageBreaksThings(t *testing.T) {
	t.Parallel()
	b := browse(t, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
- name: chat
  replicas: 2
  sidecar: routing
  disaggregation: {prefillReplicas: 1}
  modelServer: {batching: continuous}
workload: {requests: 4, prompt: {characters: 4000}}
`)
	b.does("slow metrics", map[string]string{"seconds": "5", "for seconds": "0.2"}, "It has begun, for 200ms",
		"incident ended")
	b.does("lose transfers", map[string]string{"for seconds": "60"}, "It has begun", "what=lose-transfers")
	b.does("slow down", map[string]string{"factor": "2"}, "It has happened", "factor=2")
	b.does("restart epp", map[string]string{"for seconds": "0.2"}, "It has begun", "what=restart-epp")
	b.does("crash", map[string]string{"for seconds": "0.2"}, "It has begun", "what=crash")
}

// Every part of a live run shows its counters, and its configuration in force.
func TestPageParts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../examples/kv-manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	b := browse(t, strings.NewReplacer("replicas: 5", "replicas: 3",
		"workload:", "  - {name: other, model: Qwen/Qwen2.5-7B}\nworkload:").Replace(string(text)))
	b.shows("flow")
	for _, x := range []struct{ part, fact, config string }{
		{"envoy", "answers 2xx", "envoy.filters.http.ext_proc"},
		{"epp decode", "pool decode", "EndpointPickerConfig"},
		{"epp other", "pool other", "EndpointPickerConfig"},
		{"kv", "decode-0: blocks cached", ""},
		{"client", "at once at most", ""},
	} {
		b.clicks(fmt.Sprintf(`[data-part=%q]`, x.part))
		b.reads(".about .pairs", x.fact)
		if x.config != "" {
			b.reads(".about pre", x.config)
		}
		if x.part == "epp other" {
			text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.querySelector(".about").innerText`))
			if err != nil || strings.Contains(text, "pool decode") {
				t.Errorf("the picker of a pool shows another's: %s (%v)", text, err)
			}
		}
	}
	b.clicks(`[data-part^="pod "]`)
	b.reads(".about pre", "max-num-seqs: ")
	b.reads(".about .pairs", "decode-0")
}
