package web_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/chromium"
	"github.com/windtunnel/windtunnel/web"
)

// Above 50 servers a pool's routes are one line to a strip, in which each server is a tile that shows its load.
func TestStripsOfManyServers(t *testing.T) {
	server, _ := played(t, fleet(60))
	ctx := tab(t, 1440, 900)
	prefer(t, ctx, "prefers-reduced-motion", "reduce")
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	do(t, ctx, "pools", until(`[...document.querySelectorAll(".pool")].map((e) => `+
		`e.getAttribute("aria-label") + " " + e.querySelectorAll(".tile").length).join() === "Pool chat 36,Pool code 24"`))
	do(t, ctx, "own pickers",
		until(`[...document.querySelectorAll(".pool .picker")].map((e) => e.dataset.part).join() === "epp chat,epp code"`))
	do(t, ctx, "bundled", until(`(() => {
		const from = (e) => document.querySelector("[data-part=" + JSON.stringify(e.dataset.from) + "]");
		const strips = [...document.querySelectorAll(".strip")];
		return strips.length === 3 && strips.map((e) => e.dataset.from).join() === "envoy,sidecar code,sidecar code" &&
			[...document.querySelectorAll(".tile")].every((e) => from(e).contains(e));
	})()`))
	do(t, ctx, "a moment", slide(0.5))
	do(t, ctx, "each tile's colour is its load", until(`(() => {
		const tiles = [...document.querySelectorAll(".tile")].map((e) => [parseInt(e.style.getPropertyValue("--load")),
			...e.title.match(/: (\d+) waiting, (\d+) running/).slice(1).map(Number)]);
		return tiles.some((x) => x[0] > 0) && tiles.every(([load, waits, runs]) => load > 0 === waits + runs > 0);
	})()`))
	press(t, ctx, kb.Tab)
	focus(t, ctx, `[data-part="pod 10.0.0.1:8000"]`)
	press(t, ctx, kb.ArrowRight, kb.ArrowRight, kb.ArrowLeft)
	do(t, ctx, "arrows", focused(`[data-part="pod 10.0.0.2:8000"]`))
	do(t, ctx, "a tile", chromium.Click(`[data-part="pod 10.1.0.3:8000"]`))
	do(t, ctx, "its panel", chromium.Shows(".about", "10.1.0.3:8000"))
	do(t, ctx, "a picker", chromium.Click(`[data-part="epp chat"]`))
	do(t, ctx, "its configuration alone", until(`(() => { const e = document.querySelector(".about");
		return e.innerText.includes("Endpoint picker of chat") && e.innerText.includes("kv-cache-utilization-scorer") &&
			!e.innerText.includes("prefill-filter"); })()`))
}

// onLines returns whether all dots of the topology are on a line between parts or in a part, and how many pixels have
// none of both.
const onLines = `import(document.querySelector("script[type=module]").src.replace("app.js", "dots.js")).then(({Places}) => {
	const box = document.querySelector(".stage"), canvas = box.querySelector("canvas:not(.lines)"), at = new Places(box), near = new Map();
	const add = (x, y) => near.set(Math.round(x / 4) + "," + Math.round(y / 4), 1);
	for (const key of at.of.keys()) {
		if (!at.of.get(key).from) continue;
		const l = at.line(key);
		for (let i = 2; i < l.length; i += 2) for (let k = 0; k <= 200; k++) add(l[i - 2] + (l[i] - l[i - 2]) * k / 200, l[i - 1] + (l[i + 1] - l[i - 1]) * k / 200);
	}
	const beside = (x, y) => [-2, -1, 0, 1, 2].some((i) => [-2, -1, 0, 1, 2].some((j) => near.has(Math.round(x / 4 + i) + "," + Math.round(y / 4 + j))));
	const within = (x, y) => [...at.of.values()].some((p) => !p.strip && x > p.x - 5 && x < p.x + p.w + 5 && y > p.y - 5 && y < p.y + p.h + 5);
	const copy = Object.assign(document.createElement("canvas"), {width: canvas.width, height: canvas.height}).getContext("2d", {willReadFrequently: true});
	copy.drawImage(canvas, 0, 0);
	const d = copy.getImageData(0, 0, canvas.width, canvas.height).data;
	let drawn = 0, lost = 0;
	for (let i = 3; i < d.length; i += 4) if (d[i] > 40) {
		const n = (i - 3) / 4, x = n % canvas.width, y = Math.floor(n / canvas.width);
		drawn++;
		if (!within(x, y) && !beside(x, y)) lost++;
	}
	return [drawn, lost];
})`

// Dots travel along the lines, also to servers behind others and to those of a bundle. On a phone the parts stand below
// each other and nothing scrolls sideways, whatever the number of servers.
func TestDotsStayOnTheirLines(t *testing.T) {
	for _, x := range []struct {
		servers int
		width   int64
	}{{3, 390}, {30, 1440}, {60, 390}} {
		t.Run(fmt.Sprintf("%d servers, %d pixels", x.servers, x.width), func(t *testing.T) {
			server, _ := played(t, fleet(x.servers))
			ctx := tab(t, x.width, 844)
			do(t, ctx, "open", chromedp.Navigate(server.Link()))
			do(t, ctx, "drawn", until(drawn["flow"]))
			if x.width < 400 {
				do(t, ctx, "below each other", until(`(() => {
					const at = (e) => document.querySelector(e).getBoundingClientRect();
					return at("[data-part=envoy]").bottom < at(".picker").top && at(".picker").bottom < at(".pod").top;
				})()`))
			}
			for _, wide := range do(t, ctx, "width", chromedp.Evaluate[[]string](tooWide)) {
				t.Error(wide)
			}
			do(t, ctx, "a moment", slide(0.3))
			do(t, ctx, "on", chromium.Click(".playhead button"))
			for seen := 0; seen < 3; {
				pixels := do(t, ctx, "dots", chromedp.Evaluate[[]int](onLines, chromedp.EvalAwaitPromise))
				if pixels[0] > 0 {
					seen++
				}
				if pixels[1] > 0 {
					t.Fatalf("%d of %d pixels of dots are beside their lines", pixels[1], pixels[0])
				}
			}
		})
	}
}

// A picker shows how fast it decides, which servers it picked last, and who waits, by priority.
func TestPickerAtWork(t *testing.T) {
	book := web.NewBook()
	group := func(endpoints ...string) []web.Group { return []web.Group{{Endpoints: endpoints}} }
	server, err := web.Start(web.Options{Book: book, Meta: web.Meta{Mode: "live", Pools: []web.Pool{
		{Name: "chat", Groups: group("10.0.0.1:8000", "10.0.0.2:8000")},
		{Name: "code", Groups: group("10.1.0.1:8000")}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	n := 0
	arrives := func(at machine.Time, class string) record.Event {
		n++
		e := record.Event{Time: at, Request: record.RequestID(1, n), Hop: record.Client, Step: record.RequestSent,
			Details: record.Details{record.D("class", class)}}
		book.Record(e)
		e.Hop, e.Step, e.Details = record.EPP, record.RequestReceived, record.Details{record.D("pool", "chat")}
		book.Record(e)
		return e
	}
	decided := func(e record.Event, endpoint string, priority int) {
		e.Step, e.Endpoint = record.EndpointPicked, endpoint
		e.Details = record.Details{record.D(record.Explanation, &picker.Explanation{Priority: priority})}
		book.Record(e)
	}
	for i := range 10 {
		at := machine.Time(i) * 100 * machine.Millisecond
		decided(arrives(at, "gold"), "10.0.0.1:8000", 10)
		decided(arrives(at, "batch"), "10.0.0.2:8000", -5)
	}
	for range 3 {
		arrives(machine.Second, "gold")
	}
	arrives(machine.Second, "batch")
	ctx := tab(t, 1440, 900)
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	for _, want := range []string{"4 waiting", "priority 10: 3", "priority -5: 1", "20.0 decisions/s",
		"last: 10.0.0."} {
		do(t, ctx, want, chromium.Shows(`[data-part="epp chat"]`, want))
	}
	do(t, ctx, "the other pool's", chromium.Shows(`[data-part="epp code"]`, "none waiting"))
	if other := do(t, ctx, "its queue", chromedp.Evaluate[string](
		`document.querySelector('[data-part="epp code"]').innerText`)); strings.Contains(other, "priority") {
		t.Errorf("the picker of another pool shows %q", other)
	}
}
