package web_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/chromium"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
	"github.com/windtunnel/windtunnel/web"
)

// browser is shared by all tests of the package. TestMain ends it.
var browser = sync.OnceValues(func() (context.Context, error) {
	ctx, cancel, err := chromium.Allocate(context.Background())
	if err != nil {
		return nil, err
	}
	first, end := chromedp.NewContext(ctx)
	closing = func() { end(); cancel() }
	return first, chromedp.Do(first)
})

var closing = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	closing()
	os.Exit(code)
}

// tab opens a tab of the browser. Any output on its console fails the test.
func tab(t *testing.T, width, height int64) context.Context {
	t.Helper()
	b, err := browser()
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := chromedp.NewContext(b)
	messages := chromedp.Console(ctx)
	var said []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m, err := range messages {
			if err != nil {
				return
			}
			said = append(said, m.String())
		}
	}()
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, height)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if shots := os.Getenv("WINDTUNNEL_SHOTS"); shots != "" {
			shoot(t, ctx, shots)
		}
		end()
		<-done
		if len(said) > 0 {
			t.Errorf("on the console: %s", strings.Join(said, "\n"))
		}
	})
	return ctx
}

// shoot saves a screenshot of the tab.
func shoot(t *testing.T, ctx context.Context, dir string) {
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Logf("no picture: %v", err)
		return
	}
	name := strings.NewReplacer("/", "-").Replace(t.Name()) + ".png"
	if err := os.WriteFile(filepath.Join(dir, name), picture, 0o644); err != nil {
		t.Fatal(err)
	}
}

// played returns the page of a scenario in virtual time, whose description may be changed.
func played(t *testing.T, text string, change ...func(*web.Meta)) (*web.Server, report.Summary) {
	t.Helper()
	s, err := scenario.Parse("scenario", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	book := web.NewBook()
	inputs := web.NewInputs()
	session, err := report.Start(
		report.Options{Out: new(strings.Builder), Also: book, Inputs: inputs, Requests: s.Workload.Requests,
			Detail: report.Progress, SLO: s.Workload.SLO,
			Judge: report.JudgeBy(s.Expectations.Check)})
	if err != nil {
		t.Fatal(err)
	}
	book.Measure(session)
	meta := web.Meta{Mode: "sim", Scenario: s.Name, Seed: s.Seed, BBR: len(s.Pools) > 1, Pools: poolsOf(s)}
	for _, f := range change {
		f(&meta)
	}
	server, err := web.Start(web.Options{Book: book, Meta: meta})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := virtual.Play(s, session, virtual.Options{Gaps: session.Gaps(), Served: session.SetLoads}); err != nil {
		t.Fatal(err)
	}
	sum, err := session.End(false)
	if err != nil {
		t.Fatal(err)
	}
	book.End()
	server.Inputs(inputs.Each)
	if err := web.PlayGauges(context.Background(), book, inputs.Each); err != nil {
		t.Fatal(err)
	}
	meta.WhatIf = true
	server.Describe(meta)
	return server, sum
}

// poolsOf returns a scenario's pools, with the addresses of virtual time.
func poolsOf(s *scenario.Scenario) []web.Pool {
	var out []web.Pool
	for i := range s.Pools {
		p := &s.Pools[i]
		pool := web.Pool{Name: p.Name, Held: p.Flow == scenario.Held, Config: string(p.EPP.Config.Text)}
		for n, endpoint := range virtual.Endpoints(i, p) {
			prefills := p.DeploymentOf(n).Prefills
			if k := len(pool.Groups); k == 0 || pool.Groups[k-1].Prefill != prefills {
				pool.Groups = append(pool.Groups, web.Group{Prefill: prefills})
			}
			g := &pool.Groups[len(pool.Groups)-1]
			g.Endpoints = append(g.Endpoints, endpoint)
		}
		out = append(out, pool)
	}
	return out
}

const few = `
apiVersion: windtunnel/v1alpha1
kind: Scenario
name: few
pools:
  - {name: chat, flow: held, replicas: 3, modelServer: {prefill: 200ms}}
workload: {requests: 40, concurrency: 6}
`

// until waits until an expression is true in the page.
func until(expression string) chromedp.Action[bool] {
	return chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(0)) // do ends it
}

// do takes a step in the page, which has a minute.
func do[T any](t *testing.T, ctx context.Context, what string, a chromedp.Action[T]) T {
	t.Helper()
	step, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	v, err := chromedp.Run(step, a)
	if err != nil {
		read, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		body, _ := chromedp.Run(read, chromedp.Evaluate[string](`document.body.innerText`))
		t.Fatalf("%s: %v\nthe page:\n%s", what, err, body)
	}
	return v
}

// prefer sets one of the user's preferences in the browser.
func prefer(t *testing.T, ctx context.Context, name, value string) {
	t.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: name, Value: value}}}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media); err != nil {
		t.Fatal(err)
	}
}

// A user opens the link, finds a request by its number and reads where its time went.
func TestRequestsAndWaterfall(t *testing.T) {
	server, sum := played(t, few)
	ctx := tab(t, 1400, 900)
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	do(t, ctx, "requests", chromium.Click(`nav a[href="#requests"]`))
	do(t, ctx, "all requests", chromium.Shows("#shown", "40 requests"))
	if at := do(t, ctx, "address", chromedp.Location()); strings.Contains(at, "token") {
		t.Errorf("the token stays in the address bar: %s", at)
	}
	do(t, ctx, "the report's metrics", chromium.Shows(".metrics", fmt.Sprint(sum.Requests)))
	do(t, ctx, "filter", chromedp.SendKeys(`input[type=search]`, "#7"))
	do(t, ctx, "one request", chromium.Shows("#shown", "1 of 40 requests"))
	do(t, ctx, "choose", chromium.Click(`.all .line`))
	do(t, ctx, "its waterfall", chromium.Shows(".waterfall", "holds the request open"))
	do(t, ctx, "its lanes", chromium.Shows(".waterfall", "prefill 200.0 ms"))
	do(t, ctx, "its steps", chromium.Shows(".steps", "part2 sent"))
	do(t, ctx, "a step", chromium.Click(`//li[contains(., "part1 sent")]/button`))
	do(t, ctx, "headers as a diff", chromium.Shows(".diff", "content-length"))
}

// A filtered and sorted list stays so while requests start and end, and the page shows a changed description at once.
func TestListOfALiveRun(t *testing.T) {
	server, session := fed(t, 0)
	at := func(n int) machine.Time { return machine.Time(n) * machine.Second }
	for n := 1; n <= 40; n++ {
		lived(session, n, at(n))
	}
	ctx := tab(t, 1400, 900)
	do(t, ctx, "open", chromedp.Navigate(server.Link()+"#requests"))
	do(t, ctx, "all", chromium.Shows("#shown", "40 requests"))
	do(t, ctx, "filter", chromedp.SendKeys(`input[type=search]`, "10.0.0.3 outcome:compl"))
	do(t, ctx, "those of a server", chromium.Shows("#shown", "3 of 40 requests"))
	do(t, ctx, "the newest first", chromium.Click(`//div[@role="columnheader"]/button[starts-with(., "sent")]`))
	numbers := func(want string) {
		t.Helper()
		do(t, ctx, want, until(fmt.Sprintf(
			`[...document.querySelectorAll(".all .line")].sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map((e) => `+
				`e.querySelector(".request").innerText).join(" ") === %q`, want)))
	}
	numbers("#34 #18 #2")
	for n := 42; n <= 66; n++ {
		lived(session, n, at(n))
	}
	lived(session, 82, at(10)) // belongs between the existing ones
	numbers("#66 #50 #34 #18 #82 #2")
	do(t, ctx, "another filter", chromedp.Evaluate[any](`document.querySelector("input[type=search]").select()`))
	do(t, ctx, "typed", chromedp.SendKeys(`input[type=search]`, "#2"))
	do(t, ctx, "one", chromium.Shows("#shown", "1 of 66 requests"))
	server.Describe(web.Meta{Mode: "live", Scenario: "another name"})
	do(t, ctx, "its name", chromium.Shows("header", "another name"))
}

// The page is readable on a phone in the dark scheme.
func TestPhone(t *testing.T) {
	server, _ := played(t, few)
	ctx := tab(t, 360, 740)
	prefer(t, ctx, "prefers-color-scheme", "dark")
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	do(t, ctx, "the parts", chromium.Shows(".stage", "Endpoint picker"))
	do(t, ctx, "requests", chromium.Click(`nav a[href="#requests"]`))
	do(t, ctx, "all requests", chromium.Shows("#shown", "40 requests"))
	if wide := do(t, ctx, "width", chromedp.Evaluate[int](`document.documentElement.scrollWidth`)); wide > 360 {
		t.Errorf("the page is %d pixels wide on a phone of 360", wide)
	}
}

// The topology shows every part, and where each request is at the chosen moment.
func TestTopology(t *testing.T) {
	server, _ := played(t, few)
	ctx := tab(t, 1400, 820)
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	do(t, ctx, "servers", chromium.Shows(".servers", "10.0.0.3:8000"))
	do(t, ctx, "a moment", slide(0.43))
	do(t, ctx, "held requests", chromium.Shows(".stage", "6 requests in flight"))
	do(t, ctx, "as many in the header", until(figure("in flight")+` === "6"`))
	do(t, ctx, "its moment, too",
		until(figure("time")+` === document.querySelector(".playhead output").firstChild.data.trim()`))
	do(t, ctx, "what was sent by then", until(figure("requests")+` < 40`))
	do(t, ctx, "part 1 without part 2", chromium.Shows(".stage", "held open"))
	do(t, ctx, "the end", slide(1))
	do(t, ctx, "nobody", chromium.Shows(".stage", "0 requests in flight"))
	do(t, ctx, "nobody in the header", until(figure("in flight")+` === "0"`))
	do(t, ctx, "all were sent", until(figure("requests")+` === "40"`))
	do(t, ctx, "back", slide(0.41))
	do(t, ctx, "a part", chromium.Click(`[data-part="pod 10.0.0.2:8000"]`))
	do(t, ctx, "its metrics", chromium.Shows(".about", "picked"))
	do(t, ctx, "another moment", slide(0.43))
	do(t, ctx, "drawn", chromedp.Sleep(700*time.Millisecond))
}

// A prefill leg goes through the sidecar to a prefill server, which has its own place.
func TestTopologyOfPrefillServers(t *testing.T) {
	pd, err := os.ReadFile("../examples/pd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	server, _ := played(t, string(pd))
	ctx := tab(t, 1500, 860)
	prefer(t, ctx, "prefers-color-scheme", "dark")
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	do(t, ctx, "the sidecar", chromium.Shows(".stage", "Routing sidecar"))
	do(t, ctx, "prefill servers", until(`document.querySelectorAll(".pod.prefills").length === 2`))
	do(t, ctx, "a moment", slide(0.3))
	do(t, ctx, "on", chromium.Click(".playhead button"))
	do(t, ctx, "drawn", chromedp.Sleep(900*time.Millisecond))
	do(t, ctx, "a request", chromedp.Evaluate[any](`location.hash = "request/req-1-000001"; 0`))
	do(t, ctx, "what was transferred is not cached", until(`(() => {
		const facts = Object.fromEntries([...document.querySelectorAll(".facts div")].map((e) => [...e.children].map((x) => x.innerText)));
		return facts.cached === "0 tokens" && facts.transferred === "250 MB";
	})()`))
}

// figure returns an expression for a figure of the header.
func figure(what string) string {
	return fmt.Sprintf(`([...document.querySelectorAll("header .metric")].find((e) => e.firstChild.textContent === `+
		`%q) || document.body).lastChild.textContent`, what)
}

// slide moves the time slider to a fraction of the run and pauses there.
func slide(share float64) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Run(ctx, chromedp.Poll[bool](fmt.Sprintf(`(() => {
			const e = document.querySelector(".slider"), b = document.querySelector(".playhead button");
			if (!e || Number(e.max) < 2) return false;
			if (b.innerText === "Pause") { b.click(); return false; }
			e.value = Math.round(Number(e.max) * %v);
			e.dispatchEvent(new Event("input", {bubbles: true}));
			return true;
		})()`, share)))
		return err
	})
}

const chosen = `
apiVersion: windtunnel/v1alpha1
kind: Scenario
name: chosen
pools:
  - name: chat
    replicas: 4
    modelServer: {batching: continuous, profile: vllm, numGPUBlocks: 2000}
    epp:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}, {type: prefix-cache-scorer}]
        schedulingProfiles:
          - name: default
            plugins: [{pluginRef: queue-scorer, weight: 2}, {pluginRef: kv-cache-utilization-scorer, weight: 2}, {pluginRef: prefix-cache-scorer, weight: 3}]
workload: {requests: 200, concurrency: 24, maxTokens: 60, prompt: {characters: 400..6000, shared: {groups: 3, characters: 2000}}}
`

// A table explains a request's decision, and changing a weight shows where this request and others would have gone.
func TestWhyAndWhatIf(t *testing.T) {
	server, _ := played(t, chosen)
	ctx := tab(t, 1500, 1000)
	do(t, ctx, "open", chromedp.Navigate(server.Link()+"#request/req-1-000050"))
	do(t, ctx, "why", chromium.Click("#tab-why"))
	do(t, ctx, "the table", chromium.Shows(".decision", "queue-scorer"))
	do(t, ctx, "the choice", chromium.Shows(".decision", "picked"))
	do(t, ctx, "a scorer off", chromium.Click(".knob input[type=checkbox]"))
	do(t, ctx, "the answer", chromium.Shows(".why", "It would have gone to"))
	do(t, ctx, "the others", chromium.Shows(".moved", "of 200 requests"))
	do(t, ctx, "seen", chromedp.Evaluate[any](`document.querySelector(".why h3").scrollIntoView()`))
}

// What if asks about one pool: it shows that pool's scorers and configuration.
func TestWhatIfOfAPool(t *testing.T) {
	server, _ := played(t, fleet(12))
	ctx := tab(t, 1400, 900)
	do(t, ctx, "open", chromedp.Navigate(server.Link()+"#whatif"))
	knobs := func(want string) {
		t.Helper()
		do(t, ctx, want, until(fmt.Sprintf(`[...document.querySelectorAll(".knob small:first-of-type")].map((e) => `+
			`e.innerText).filter((x, i, all) => all.indexOf(x) === i).join() === %q`, want)))
	}
	knobs("default")
	do(t, ctx, "the other", chromedp.Evaluate[any](`(() => { const e = document.querySelector(".whatif select");
		e.value = "code"; e.dispatchEvent(new Event("change", {bubbles: true})); })()`))
	knobs("decode,prefill")
	do(t, ctx, "its configuration", until(`document.querySelector("#config").value.includes("prefill-filter")`))
}

// The view Time has its plots, and the slider's moment in them.
func TestTime(t *testing.T) {
	server, sum := played(t, chosen)
	ctx := tab(t, 1500, 1000)
	do(t, ctx, "open", chromedp.Navigate(server.Link()+"#time"))
	do(t, ctx, "plots", until(`document.querySelectorAll(".plot canvas").length === 7`))
	do(t, ctx, "spans", chromium.Shows(".spans", fmt.Sprint(sum.Spans[0].Count)))
	do(t, ctx, "measures", chromium.Shows(".measures", "output tokens/s"))
	do(t, ctx, "all of them",
		until(fmt.Sprintf(`document.querySelectorAll(".measures tbody tr").length === %d`, len(sum.Measures))))
	do(t, ctx, "no interval without a reason", chromium.Shows(".measures", "too short"))
	do(t, ctx, "the cache", chromium.Shows(".sums", "were cached where they went"))
	do(t, ctx, "drawn", chromedp.Sleep(300*time.Millisecond))
}

// A shared file has the whole summary that the run prints.
func TestSharedFileHasTheSummary(t *testing.T) {
	pd, err := os.ReadFile("../examples/pd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	server, want := played(t, string(pd))
	var page bytes.Buffer
	if err := server.WriteFile(&page); err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`id="run">([A-Za-z0-9+/=]+)<`).FindSubmatch(page.Bytes())
	if found == nil {
		t.Fatal("the file has no run")
	}
	var run struct {
		Frames []struct {
			Metrics struct{ Summary report.Summary }
		}
	}
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(found[1])))
	if err == nil {
		err = json.NewDecoder(z).Decode(&run)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(want)
	if err == nil {
		err = json.Unmarshal(text, &want) // as a reader of the summary decodes it
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, run.Frames[len(run.Frames)-1].Metrics.Summary); d != "" || len(want.Measures) == 0 ||
		want.Transfers == nil || len(want.Load) == 0 {
		t.Errorf("the summary (-) and the file's (+):\n%s", d)
	}
}

// Two runs are compared in one view: the lines of the run from a shared file are dashed, and its percentiles stand
// beside the others.
func TestTwoRuns(t *testing.T) {
	server, _ := played(t, chosen)
	other, sum := played(t, few)
	file := filepath.Join(t.TempDir(), "other.html")
	f, err := os.Create(file)
	if err == nil {
		err = errors.Join(other.WriteFile(f), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx := tab(t, 1500, 1000)
	do(t, ctx, "open", chromedp.Navigate(server.Link()+"#time"))
	do(t, ctx, "plots", until(`document.querySelectorAll(".plot canvas").length === 7`))
	do(t, ctx, "another run", chromedp.SetUploadFiles(`input[type=file]`, []string{file}))
	do(t, ctx, "its name", chromium.Shows(".times", "few (sim) is dashed"))
	do(t, ctx, "its lines", chromium.Shows(".plot", "in flight, other run"))
	p50 := fmt.Sprintf("%.1f ms", 1e3*sum.Spans[0].P50)
	do(t, ctx, "its percentiles", chromium.Shows(".spans small", p50))
	do(t, ctx, "drawn", chromedp.Sleep(300*time.Millisecond))
	do(t, ctx, "away", chromium.Click(`//button[.="Remove it"]`))
	do(t, ctx, "alone", until(
		`![...document.querySelectorAll(".plot")].some((e) => e.innerText.includes("other run"))`))
}

// A shared file shows the run without a server, with the same requests and steps.
func TestShare(t *testing.T) {
	server, _ := played(t, chosen)
	file := filepath.Join(t.TempDir(), "run.html")
	f, err := os.Create(file)
	if err == nil {
		err = errors.Join(server.WriteFile(f), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx := tab(t, 1400, 900)
	do(t, ctx, "open", chromedp.Navigate("file://"+file+"#request/req-1-000007"))
	do(t, ctx, "a request", chromium.Shows(".waterfall", "prefill"))
	do(t, ctx, "why", chromium.Click("#tab-why"))
	do(t, ctx, "its table", chromium.Shows(".decision", "kv-cache-utilization-scorer"))
	do(t, ctx, "what is left out", chromium.Shows(".why", "shared file cannot answer"))
	do(t, ctx, "requests", chromium.Click(`nav a[href="#requests"]`))
	do(t, ctx, "all", chromium.Shows("#shown", "200 requests"))
	do(t, ctx, "time", chromium.Click(`nav a[href="#time"]`))
	do(t, ctx, "plots", until(`document.querySelectorAll(".plot canvas").length === 7`))
}

// axe returns the script of axe-core. Without it the test is skipped, except where CI has npm to fetch it.
func axe(t *testing.T) string {
	t.Helper()
	script, err := chromium.Axe(context.Background())
	if err == nil {
		return script + "; 0"
	}
	if _, missing := exec.LookPath("npm"); os.Getenv("CI") == "" || missing != nil {
		t.Skipf("axe-core cannot be fetched: %v", err)
	}
	t.Fatal(err)
	return ""
}

// axe finds no accessibility problem in any view, in both color schemes, on a phone and on a large screen.
func TestAccessible(t *testing.T) {
	script := axe(t)
	server, _ := played(t, fleet(60))
	live := acting(t, 30)
	tuned, _ := played(t, few, searched)
	for i, look := range []struct {
		name, scheme  string
		width, height int64
	}{{"phone in the dark", "dark", 390, 740}, {"laptop in the light", "light", 1440, 900}} {
		t.Run(look.name, func(t *testing.T) {
			if !nightly.Each(i, 2) {
				t.Skip("make test-nightly runs it")
			}
			ctx := tab(t, look.width, look.height)
			prefer(t, ctx, "prefers-color-scheme", look.scheme)
			open := func(link string) {
				do(t, ctx, "open", chromedp.Navigate(link))
				do(t, ctx, "loaded", until(`document.querySelectorAll("nav a").length > 3`))
				do(t, ctx, "axe", chromedp.Evaluate[any](script))
			}
			check := func(view string) {
				checkAxe(t, ctx, view)
				for _, wide := range do(t, ctx, "width", chromedp.Evaluate[[]string](tooWide)) {
					t.Errorf("%s: %s", view, wide)
				}
			}
			open(server.Link())
			for _, view := range []string{"flow", "requests", "time", "whatif", "request/req-1-000050",
				"request/req-1-000050/why"} {
				show(t, ctx, view)
				check(view)
			}
			switchOff(t, ctx)
			check("why, with its what if")
			open(tuned.Link())
			show(t, ctx, "tune")
			check("tune")
			open(live.Link() + "#do")
			show(t, ctx, "do")
			check("do")
			show(t, ctx, "flow")
			do(t, ctx, "a part", chromium.Click(`.picker`))
			do(t, ctx, "its panel", chromium.Shows(".about", "Endpoint picker"))
			check("a part")
		})
	}
}

func checkAxe(t *testing.T, ctx context.Context, view string) {
	t.Helper()
	found := do(t, ctx, "axe", chromedp.Evaluate[struct {
		Passes     int
		Violations []string
	}](`axe.run(document, {resultTypes: ["violations"]}).then((r) => ({Passes: r.passes.length, Violations: `+
		`r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + `+
		`" " + (n.any[0] ? n.any[0].message : "")).join(" | "))}))`, chromedp.EvalAwaitPromise))
	if found.Passes < 10 {
		t.Errorf("%s: only %d rules were held against the page", view, found.Passes)
	}
	for _, v := range found.Violations {
		t.Errorf("%s: %s", view, v)
	}
}

// searched adds the result of a search with two objectives and a knob whose value today is unknown.
func searched(m *web.Meta) {
	m.Search = &web.Search{Verdict: "candidate 1 is better than today's configuration: 12.0 % (8.0 % to 16.0 %)",
		Knobs: []web.SearchKnob{{Name: "default/queue-scorer", Range: "0, 0.1 to 10"},
			{Name: "pools[0].replicas", Range: "2 to 8"}},
		Objectives: []web.SearchObjective{{Name: "ttft p90"}, {Name: "goodput", Higher: true}}}
	add := func(of, servers string, at, ttft, goodput float64, kept bool) {
		m.Search.Points = append(m.Search.Points, web.SearchPoint{Of: of,
			Values: []string{fmt.Sprint(10 * at), servers}, At: []float64{at, float64(len(servers) - 1)},
			Results: []float64{ttft, goodput},
			Texts:   []string{fmt.Sprintf("%.3g s", ttft), fmt.Sprintf("%.3g", goodput)}, Kept: kept})
	}
	for i := range 40 {
		x := float64(i) / 40
		add("search", fmt.Sprint(2+i%6), x, 0.5+x, 20+10*x*x, i%7 > 0)
		m.Search.Points[i].At[1] = float64(i%6) / 6
	}
	add("today", "", 0.5, 1.2, 21, true)
	add("best 1 (knee)", "3", 0.2, 0.6, 25, true)
	add("best 2", "8", 0.8, 1.3, 30, true)
}

// A search shows its front and its configurations. A click on a point, a click on a line and Enter in the table show
// the point's run.
func TestTune(t *testing.T) {
	server, _ := played(t, few, searched)
	run, _ := played(t, chosen)
	var acts []web.Act
	server.Acts(func(_ context.Context, a web.Act) (string, error) {
		acts = append(acts, a)
		return run.Link(), nil
	})
	ctx := tab(t, 1400, 1000)
	const drawn = `document.querySelectorAll(".chart .across").length === 43 && ` +
		`document.querySelectorAll(".chart .dot").length === 43`
	click := func(mark string, number int) func() {
		return func() {
			do(t, ctx, mark, chromedp.Evaluate[any](fmt.Sprintf(`document.querySelectorAll(".chart .%s")[%d].`+
				`dispatchEvent(new MouseEvent("click", {bubbles: true})); 0`, mark, number)))
		}
	}
	for _, choose := range []func(){click("dot", 7), click("across", 41),
		func() {
			focus(t, ctx, "tbody tr:nth-child(2) button")
			do(t, ctx, "the lines of the row", until(`document.querySelectorAll(".chart .over").length === 2`))
			press(t, ctx, kb.Enter)
		},
	} {
		do(t, ctx, "open", chromedp.Navigate(server.Link()))
		do(t, ctx, "drawn", until(drawn))
		do(t, ctx, "the verdict", chromium.Shows(".tune h2", "candidate 1 is better"))
		choose()
		eventually.Is(t, "the run is shown", func() bool { // a navigation ends what waits in the page
			shown, err := chromedp.Run(ctx,
				chromedp.Evaluate[string](`document.querySelector(".scenario")?.innerText || ""`))
			return err == nil && shown == "chosen"
		})
	}
	do(t, ctx, "back", chromedp.Navigate(server.Link()))
	do(t, ctx, "drawn", until(drawn))
	if len(acts) != 3 || acts[0].Name != "play" || acts[0].Number != 7 || acts[1].Number != 41 ||
		acts[2].Number != 41 {
		t.Errorf("it asked for %+v", acts)
	}
}

// A user who breaks something chooses what, where and for how long, and reads the result.
func TestDo(t *testing.T) {
	book := web.NewBook()
	server, err := web.Start(
		web.Options{Book: book, Meta: web.Meta{Mode: "live",
			Pools: []web.Pool{{Name: "chat",
				Groups: []web.Group{{Endpoints: []string{"10.0.0.1:8000", "10.0.0.2:8000"}}}}},
			Do: []web.Action{{Name: "slow-down", What: "Steps take longer.", Servers: true, For: true, Number: "factor",
				Breaks: true}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	acts := make(chan web.Act, 8)
	server.Acts(func(_ context.Context, a web.Act) (string, error) {
		acts <- a
		return "It has begun.", nil
	})
	ctx := tab(t, 1400, 900)
	do(t, ctx, "open", chromedp.Navigate(server.Link()+"#do"))
	form := `//form[contains(., "slow-down") or contains(., "slow down")]`
	do(t, ctx, "where", chromedp.SetValue(form+`//select`, "1"))
	do(t, ctx, "chosen", chromedp.Evaluate[any](
		`document.querySelectorAll("form.act")[1].querySelector("select").dispatchEvent(new Event("change", `+
			`{bubbles: true})); 0`))
	do(t, ctx, "how much", chromedp.SendKeys(form+`//label[contains(., "factor")]/input`, "3"))
	do(t, ctx, "how long", chromedp.SendKeys(form+`//label[contains(., "seconds")]/input`, "2.5"))
	do(t, ctx, "do it", chromium.Click(form+`//button`))
	do(t, ctx, "done", chromium.Shows(".do", "It has begun."))
	if a := <-acts; a.Name != "slow-down" || a.Server != 1 || a.Number != 3 || a.For != 2.5 {
		t.Errorf("it asked for %+v", a)
	}
}
