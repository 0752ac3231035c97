package web_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/windtunnel/windtunnel/internal/chromium"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/web"
)

// weighed is the configuration of a pool's endpoint picker with three scorers.
const weighed = `{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, ` +
	`plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}, {type: prefix-cache-scorer}], ` +
	`schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer, weight: 2}, ` +
	`{pluginRef: kv-cache-utilization-scorer, weight: 2}, {pluginRef: prefix-cache-scorer, weight: 3}]}]}`

// fleet returns a scenario with so many servers: with few, one pool whose requests are held open, with more a pool
// beside one that has prefill servers.
func fleet(servers int) string {
	head := fmt.Sprintf("apiVersion: windtunnel/v1alpha1\nkind: Scenario\nname: %d servers\npools:\n", servers)
	if servers < 10 {
		return head + fmt.Sprintf(`  - {name: chat, flow: held, replicas: %d, modelServer: {batching: continuous, profile: vllm, numGPUBlocks: 2000}, epp: {config: %s}}
workload: {requests: 200, concurrency: 24, maxTokens: 60, prompt: {characters: 400..6000, shared: {groups: 3, characters: 2000}}}
`, servers, weighed)
	}
	decode, apart := servers*6/10, servers*27/100
	return head + fmt.Sprintf(`  - {name: chat, replicas: %d, modelServer: {batching: continuous}, epp: {config: %s}}
  - name: code
    model: Qwen/Qwen2.5-7B
    sidecar: routing
    replicas: %d
    disaggregation: {prefillReplicas: %d, connector: nixlv2}
    modelServer: {batching: continuous}
workload:
  requests: %d
  rate: %d
  outputTokens: 20..160
  prompt: {characters: 400..8000}
  classes: [{name: chat, share: 60%%}, {name: code, share: 40%%, model: Qwen/Qwen2.5-7B}]
`, decode, weighed, apart, servers-decode-apart, servers*6, servers*3)
}

// drawn has an expression for each view that holds once the view is complete.
var drawn = map[string]string{
	"flow":                     `!!document.querySelector(".pod") && !!document.querySelector(".stage canvas")`,
	"requests":                 `!!document.querySelector(".all .line")`,
	"time":                     `document.querySelectorAll(".plot canvas").length > 5`,
	"whatif":                   `!!document.querySelector(".moved")`,
	"request/req-1-000050":     `!!document.querySelector(".waterfall .bar")`,
	"request/req-1-000050/why": `!!document.querySelector(".decision table")`,
	"tune":                     `document.querySelectorAll(".tune .chart path").length > 40`,
	"do":                       `document.querySelectorAll("form.act").length > 1`,
}

// show opens a view of the page and waits until it is complete.
func show(t *testing.T, ctx context.Context, view string) {
	t.Helper()
	hash, why := strings.CutSuffix(view, "/why")
	do(t, ctx, view, chromedp.Evaluate[any](fmt.Sprintf(`location.hash = %q; 0`, hash)))
	if why {
		do(t, ctx, "why", chromium.Click("#tab-why"))
	}
	do(t, ctx, "drawn", until(drawn[view]))
}

// switchOff switches a scorer off, once, and waits for the answer of what if.
func switchOff(t *testing.T, ctx context.Context) {
	t.Helper()
	do(t, ctx, "a scorer off", chromedp.Evaluate[any](`(() => {
		const all = [...document.querySelectorAll(".knob input[type=checkbox]")];
		if (all.every((e) => e.checked)) all[0].click();
	})()`))
	do(t, ctx, "the answer", chromium.Shows(".moved", "gone elsewhere"))
}

// acting returns the page of a live run with servers and actions.
func acting(t *testing.T, servers int) *web.Server {
	t.Helper()
	s, err := scenario.Parse("scenario", []byte(fleet(servers)))
	if err != nil {
		t.Fatal(err)
	}
	server, err := web.Start(web.Options{Book: web.NewBook(),
		Meta: web.Meta{Mode: "live", Scenario: s.Name, Envoy: true, Gateway: "127.0.0.1:8080", Pools: poolsOf(s),
			Do: []web.Action{
				{Name: "load", What: "Sends more of the scenario's requests.", Number: "requests a second",
					For: true},
				{Name: "crash", What: "The engine of a model server dies.", Servers: true, For: true, Breaks: true},
				{Name: "slow-down", What: "The steps of a model server take this many times as long.",
					Servers: true, For: true, Number: "factor", Breaks: true},
				{Name: "restart-epp", What: "The endpoint picker stops, and starts again.", For: true, Breaks: true}}}})
	if err != nil {
		t.Fatal(err)
	}
	server.Parts(func(context.Context, string) (web.Part, error) {
		return web.Part{Facts: [][2]string{{"pool chat", "127.0.0.1:9002"}}, Config: "kind: EndpointPickerConfig"}, nil
	})
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	return server
}

// TestPictures writes a picture of each view, for people to look at: at three widths, in both themes, of three sizes of
// fleets. No view is wider than its window, and axe finds nothing.
func TestPictures(t *testing.T) {
	dir := os.Getenv("WINDTUNNEL_PICTURES")
	if dir == "" {
		t.Skip("it takes minutes; make pictures plays it")
	}
	script := axe(t)
	for _, servers := range []int{3, 30, 300} {
		finished, _ := played(t, fleet(servers))
		live := acting(t, servers)
		for _, scheme := range []string{"light", "dark"} {
			for _, x := range []struct{ name, link, view string }{
				{"topology", finished.Link(), "flow"},
				{"requests", finished.Link(), "requests"},
				{"request", finished.Link(), "request/req-1-000050"},
				{"why", finished.Link(), "request/req-1-000050/why"},
				{"time", finished.Link(), "time"},
				{"whatif", finished.Link(), "whatif"},
				{"do", live.Link(), "do"},
			} {
				t.Run(fmt.Sprintf("%s of %d servers, %s", x.name, servers, scheme), func(t *testing.T) {
					ctx := tab(t, 1440, 900)
					prefer(t, ctx, "prefers-color-scheme", scheme)
					do(t, ctx, "open", chromedp.Navigate(x.link+"#"+strings.TrimSuffix(x.view, "/why")))
					do(t, ctx, "axe", chromedp.Evaluate[any](script))
					for _, size := range [][2]int64{{390, 844}, {1440, 900}, {2560, 1440}} {
						do(t, ctx, "size", chromedp.EmulateViewport(size[0], size[1]))
						show(t, ctx, x.view)
						switch x.name {
						case "topology": // the dots are on their way
							do(t, ctx, "a moment", slide(0.4))
							do(t, ctx, "on", chromedp.Evaluate[any](`(() => {
								const e = document.querySelector(".speed select");
								e.value = "0.1"; e.dispatchEvent(new Event("change", {bubbles: true}));
							})()`))
						case "why", "whatif":
							switchOff(t, ctx)
						}
						do(t, ctx, "laid out", chromedp.Sleep(1200*time.Millisecond))
						picture := do(t, ctx, x.name, chromedp.CaptureScreenshot())
						file := fmt.Sprintf("%s-%d-%d-%s.png", x.name, servers, size[0], scheme)
						if err := os.WriteFile(filepath.Join(dir, file), picture, 0o644); err != nil {
							t.Fatal(err)
						}
						checkAxe(t, ctx, file)
						for _, wide := range do(t, ctx, "width", chromedp.Evaluate[[]string](tooWide)) {
							t.Errorf("%s: %s", file, wide)
						}
					}
				})
			}
		}
	}
}
