package web_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/chromium"
	"github.com/windtunnel/windtunnel/web"
)

// described defines a function in the page that describes an element, so that two walks can be compared.
const described = `window.describe = (e) => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + (e.dataset.part ? "[" + e.dataset.part + "]" : "") + " " + (e.getAttribute("aria-label") || e.innerText || e.name || e.type || "").trim().replace(/\s+/g, " ").slice(0, 60);
window.controls = () => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")].filter((e) => e.checkVisibility() && !e.disabled && !e.closest("[aria-hidden=true]") && !(e.getAttribute("role") === "tab" && e.tabIndex < 0));
0`

// walk presses Tab through the whole page. It reports controls that had the focus without showing it, and controls
// that never had it.
func walk(t *testing.T, ctx context.Context, view string) {
	t.Helper()
	count := do(t, ctx, "controls",
		chromedp.Evaluate[int](`document.activeElement.blur(); controls().forEach((e) => { delete e.dataset.seen; `+
			`}); controls().length`))
	if count < 8 {
		t.Errorf("%s has only %d controls", view, count)
	}
	for range count + 4 {
		do(t, ctx, "Tab", chromedp.KeyEvent(kb.Tab))
		plain := do(t, ctx, "the ring",
			chromedp.Evaluate[string](`(() => { const e = document.activeElement; if (e === document.body) return ""; e.dataset.seen = "1";
			const ring = (x) => { const c = x && getComputedStyle(x); return c && c.outlineStyle !== "none" && parseFloat(c.outlineWidth) >= 2; };
			return ring(e) || ring(e.querySelector(".line.focus")) ? "" : describe(e); })()`))
		if plain != "" {
			t.Errorf("%s: nobody sees that %q has the focus", view, plain)
		}
	}
	for _, missed := range do(t, ctx, "the rest",
		chromedp.Evaluate[[]string](`controls().filter((e) => !e.dataset.seen).map(describe)`)) {
		t.Errorf("%s: Tab does not reach %q", view, missed)
	}
	tree, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil ||
			!slices.Contains([]string{"button", "link", "textbox", "searchbox", "combobox", "slider", "checkbox",
				"spinbutton", "tab", "grid", "region"}, fmt.Sprint(value(n.Role))) {
			continue
		}
		if named++; n.Name == nil || strings.TrimSpace(value(n.Name)) == "" {
			t.Errorf("%s: a %s has no name for those who hear the page", view, value(n.Role))
		}
	}
	if named < 8 {
		t.Errorf("%s: the accessibility tree has only %d controls", view, named)
	}
}

// value returns a text value of the accessibility tree.
func value(v *accessibility.Value) string { return strings.Trim(string(v.Value), `"`) }

func press(t *testing.T, ctx context.Context, keys ...string) {
	t.Helper()
	for _, k := range keys {
		do(t, ctx, k, chromedp.KeyEvent(k))
	}
}

// focus presses Tab until an element has the focus.
func focus(t *testing.T, ctx context.Context, selector string) {
	t.Helper()
	for range 80 {
		if do(t, ctx, "is it there",
			chromedp.Evaluate[bool](fmt.Sprintf(`document.activeElement.matches(%q)`, selector))) {
			return
		}
		press(t, ctx, kb.Tab)
	}
	t.Fatalf("Tab does not come to %s", selector)
}

func focused(selector string) chromedp.Action[bool] {
	return until(fmt.Sprintf(`document.activeElement.matches(%q)`, selector))
}

// The keyboard reaches every control of every view, every control shows its focus, and each has a name for screen
// readers.
func TestKeyboardReachesAll(t *testing.T) {
	server, _ := played(t, chosen)
	ctx := tab(t, 1400, 900)
	prefer(t, ctx, "prefers-reduced-motion", "reduce") // the run is over and nothing moves
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	do(t, ctx, "loaded", until(`document.querySelectorAll("nav a").length > 3`))
	do(t, ctx, "words", chromedp.Evaluate[int](described))
	for _, v := range []struct{ hash, drawn string }{
		{"flow", `!!document.querySelector(".pod")`},
		{"requests", `!!document.querySelector(".all .line")`},
		{"time", `document.querySelectorAll(".plot canvas").length === 7`},
		{"whatif", `!!document.querySelector(".moved") && document.querySelectorAll(".knob").length === 3`},
		{"request/req-1-000050", `!!document.querySelector(".steps button")`},
	} {
		do(t, ctx, v.hash, chromedp.Evaluate[any](fmt.Sprintf(`location.hash = %q; 0`, v.hash)))
		do(t, ctx, "drawn", until(v.drawn))
		walk(t, ctx, v.hash)
	}
	tuned, _ := played(t, few, searched)
	do(t, ctx, "a search", chromedp.Navigate(tuned.Link()))
	do(t, ctx, "loaded", until(drawn["tune"]))
	do(t, ctx, "words", chromedp.Evaluate[int](described))
	walk(t, ctx, "tune")
	do(t, ctx, "back", chromedp.Navigate(server.Link()+"#request/req-1-000050"))
	do(t, ctx, "loaded", until(`!!document.querySelector(".steps button")`))
	do(t, ctx, "words", chromedp.Evaluate[int](described))
	do(t, ctx, "why", chromium.Click("#tab-why"))
	do(t, ctx, "its knobs", until(`document.querySelectorAll(".detail .knob").length === 3`))
	do(t, ctx, "all of them",
		chromedp.Evaluate[any](`document.querySelector(".detail details").open = true; `+
			`document.querySelector(".detail .knob input").click()`))
	do(t, ctx, "the others",
		until(`!!document.querySelector(".detail .moved") && document.querySelectorAll(".detail fieldset").length `+
			`=== 4`))
	walk(t, ctx, "why")
}

// A user without a mouse opens a part, finds a request, reads its decision, changes a weight, moves through time, and
// always returns to the previous place.
func TestKeyboardAlone(t *testing.T) {
	server, _ := played(t, chosen)
	ctx := tab(t, 1400, 900)
	prefer(t, ctx, "prefers-reduced-motion", "reduce")
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	do(t, ctx, "servers", chromium.Shows(".servers", "10.0.0.3:8000"))
	focus(t, ctx, `[data-part="envoy"]`)
	press(t, ctx, " ")
	do(t, ctx, "its panel", focused(".about h2"))
	press(t, ctx, kb.Escape)
	do(t, ctx, "back at the part", focused(`[data-part="envoy"]`))
	do(t, ctx, "closed", until(`!document.querySelector(".about")`))
	focus(t, ctx, ".slider")
	press(t, ctx, kb.Home, kb.PageUp, kb.ArrowRight)
	do(t, ctx, "a tenth and a step",
		until(`(() => { const e = document.querySelector(".slider"), x = e.value / e.max; return x > 0.1 && x < 0.11 `+
			`&& e.getAttribute("aria-valuetext").length > 1; })()`))
	press(t, ctx, kb.End)
	do(t, ctx, "the end", until(`(() => { const e = document.querySelector(".slider"); return e.value === e.max; })()`))

	do(t, ctx, "from the top", chromedp.Evaluate[any](`document.activeElement.blur()`))
	focus(t, ctx, `nav a[href="#requests"]`)
	press(t, ctx, kb.Enter)
	do(t, ctx, "all requests", chromium.Shows("#shown", "200 requests"))
	do(t, ctx, "the view's name", until(`document.title.endsWith("Requests")`))
	focus(t, ctx, "input[type=search]")
	press(t, ctx, "t", "o", "k", "e", "n", "s", ">", "0")
	do(t, ctx, "said aloud",
		until(`[...document.querySelectorAll(".requests [role=status]")].some((e) => / found$/.test(e.innerText))`))
	focus(t, ctx, ".head button")
	press(t, ctx, kb.Enter)
	do(t, ctx, "sorted, and no request opened",
		until(`!!document.querySelector('[aria-sort="descending"], [aria-sort="ascending"]') && `+
			`!document.querySelector(".detail")`))
	for range 40 { // from the headings back to the list itself
		if do(t, ctx, "the list", chromedp.Evaluate[bool](`document.activeElement.matches(".grid")`)) {
			break
		}
		do(t, ctx, "Shift+Tab", chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
	}
	press(t, ctx, kb.Home, kb.ArrowDown, kb.ArrowDown)
	do(t, ctx, "the third", until(
		`(() => { const g = document.querySelector(".grid"), r = `+
			`document.getElementById(g.getAttribute("aria-activedescendant")); return !!r && r.ariaRowIndex === "4"; `+
			`})()`))
	press(t, ctx, kb.Enter)
	do(t, ctx, "the request", focused(".detail h2"))
	do(t, ctx, "its steps", until(`!!document.querySelector(".steps button")`))
	focus(t, ctx, `#tab-way`)
	press(t, ctx, kb.ArrowRight)
	do(t, ctx, "why", focused("#tab-why[aria-selected=true]"))
	do(t, ctx, "the table", chromium.Shows(".decision", "queue-scorer"))
	focus(t, ctx, ".knob input[type=range]")
	press(t, ctx, kb.End)
	do(t, ctx, "the answer", chromium.Shows(".why", "It would have gone to"))
	press(t, ctx, kb.Escape)
	do(t, ctx, "back in the list", focused(".grid"))
	do(t, ctx, "closed", until(`!document.querySelector(".detail")`))

	do(t, ctx, "from the top", chromedp.Evaluate[any](`document.activeElement.blur()`))
	focus(t, ctx, `nav a[href="#time"]`)
	press(t, ctx, kb.Enter)
	do(t, ctx, "plots", until(`document.querySelectorAll(".plot canvas").length === 7`))
	focus(t, ctx, ".plot [role=slider]")
	press(t, ctx, kb.Home, kb.ArrowRight)
	do(t, ctx, "what was then",
		until(`/: in flight [0-9]/.test(document.activeElement.getAttribute("aria-valuetext")) && `+
			`document.activeElement.getAttribute("aria-valuenow") === "1"`))
}

// The page announces outcomes of requests, incidents and the end of the run to screen readers.
func TestSaidAloud(t *testing.T) {
	server, session := fed(t, 0)
	ctx := tab(t, 1000, 700)
	lived(session, 1, machine.Second)
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	do(t, ctx, "one", chromium.Shows(".metrics", "1"))
	n := 1
	for range 400 { // until the page has noticed it
		n++
		lived(session, n, machine.Time(n)*machine.Second)
		if said := do(t, ctx, "aloud",
			chromedp.Evaluate[string](`document.querySelector("#aloud[role=status]").textContent`)); strings.Contains(
			said, "more completed") {
			return
		}
		do(t, ctx, "on", chromedp.Sleep(50*time.Millisecond))
	}
	t.Error("nothing is said of requests that completed")
}

// Nothing is wider than the window, on small phones and on large screens, in the light and the dark scheme.
func TestWidths(t *testing.T) {
	server, _ := played(t, chosen)
	doing := web.Action{Name: "slow-down", What: "Steps take longer.", Servers: true, For: true, Number: "factor",
		Breaks: true}
	live, err := web.Start(web.Options{Book: web.NewBook(),
		Meta: web.Meta{Mode: "live", Scenario: "widths",
			Pools: []web.Pool{{Name: "chat", Groups: []web.Group{{Endpoints: []string{"10.0.0.1:8000"}}}}},
			Do:    []web.Action{doing}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = live.Stop(context.Background()) })
	for _, scheme := range []string{"light", "dark"} {
		ctx := tab(t, 360, 740)
		prefer(t, ctx, "prefers-color-scheme", scheme)
		look := func(link, hash, drawn string) {
			do(t, ctx, hash, chromedp.Navigate(link+"#"+hash))
			do(t, ctx, "drawn", until(drawn))
			for _, size := range [][2]int64{{360, 740}, {600, 900}, {960, 700}, {1400, 900}, {2560, 1440},
				{3840, 2160}} {
				do(t, ctx, "size", chromedp.EmulateViewport(size[0], size[1]))
				do(t, ctx, "laid out", chromedp.Evaluate[any](
					`new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => r(0))))`,
					chromedp.EvalAwaitPromise))
				for _, wide := range do(t, ctx, "width", chromedp.Evaluate[[]string](tooWide)) {
					t.Errorf("%s in the %s, %d pixels wide: %s", hash, scheme, size[0], wide)
				}
			}
		}
		look(server.Link(), "flow", `!!document.querySelector(".pod")`)
		look(server.Link(), "requests", `!!document.querySelector(".all .line")`)
		look(server.Link(), "time", `document.querySelectorAll(".plot canvas").length === 7`)
		look(server.Link(), "whatif", `!!document.querySelector(".moved")`)
		look(server.Link(), "request/req-1-000050", `!!document.querySelector(".waterfall .bar")`)
		look(live.Link(), "do", `document.querySelectorAll("form.act").length === 2`)
		if ink := do(t, ctx, "contrast",
			chromedp.Evaluate[string](`getComputedStyle(document.body).backgroundColor`)); (ink == "rgb(246, 248, 249)") != (scheme == "light") {
			t.Errorf("in the %s the page's paper is %s", scheme, ink)
		}
	}
}

// tooWide lists elements that extend beyond the window, or beyond a parent that does not scroll, and views that scroll
// sideways.
const tooWide = `(() => { const wide = innerWidth, scrolls = (e) => { for (let p = e.parentElement; p; p = p.parentElement) { if (/auto|scroll|hidden|clip/.test(getComputedStyle(p).overflowX) && p.getBoundingClientRect().right <= wide + 1) return true; } return false; };
	const out = document.documentElement.scrollWidth > wide ? ["the page has " + document.documentElement.scrollWidth] : [];
	for (const e of document.querySelectorAll(".page, .whole, .detail, .about, .grid")) if (e.scrollWidth > e.clientWidth + 1) out.push("." + e.className + " scrolls sideways");
	for (const e of document.querySelectorAll("body *")) { if (!e.checkVisibility() || e.closest("svg") || e.closest(".heard")) continue; const r = e.getBoundingClientRect(); if (r.width && (r.right > wide + 1 || r.left < -1) && !scrolls(e)) out.push(e.tagName + "." + e.className + " from " + r.left + " to " + r.right); }
	return out.slice(0, 5); })()`
