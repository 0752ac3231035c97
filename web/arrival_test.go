package web_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/chromium"
	"github.com/windtunnel/windtunnel/web"
)

// A page that opens after a short live run shows the run from its first request, and then follows it.
func TestShortRunIsSeenWhole(t *testing.T) {
	server, session := fed(t, 3)
	server.Describe(web.Meta{Mode: "live", File: "short.yaml", Own: true})
	for n := 1; n <= 3; n++ {
		lived(session, n, machine.Time(10+n)*machine.Second)
	}
	ctx := tab(t, 1200, 700)
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	do(t, ctx, "the first request", until(figure("requests")+` === "1"`))
	do(t, ctx, "as fast as it was", until(`(document.querySelector(".speed select") || {}).value === "1"`))
	do(t, ctx, "the file and the state", until(`document.title === "short.yaml (live) · Topology"`))
	do(t, ctx, "all of them", until(figure("requests")+` === "3"`))
	do(t, ctx, "what comes next", chromium.Shows(".playhead", "Following"))
}

// A page that opens during a live run plays what it missed faster than the run continues.
func TestRunIsCaughtUp(t *testing.T) {
	server, session := fed(t, 3)
	server.Describe(web.Meta{Mode: "live", Own: true})
	lived(session, 1, machine.Second)
	session.Record(record.Event{Time: 3 * machine.Second, Request: record.RequestID(1, 2), Hop: record.Client,
		Step: record.RequestSent})
	ctx := tab(t, 1200, 700)
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	do(t, ctx, "twice as fast", until(`(document.querySelector(".speed select") || {}).value === "2"`))
	do(t, ctx, "in time", chromium.Shows(".playhead", "Following"))
}

// A recording plays from its first request, as fast as it was.
func TestReplayBegins(t *testing.T) {
	server, _ := played(t, few)
	server.Describe(web.Meta{Mode: "replay", File: "few.ndjson.gz", Scenario: "few"})
	ctx := tab(t, 1200, 700)
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	do(t, ctx, "the beginning", until(figure("requests")+` < 40 && (document.querySelector(".slider") || {}).value < 1e6`))
	do(t, ctx, "as fast as it was", until(`(document.querySelector(".speed select") || {}).value === "1"`))
	do(t, ctx, "the file and the state", until(`document.title === "few.ndjson.gz (finished) · Topology"`))
}

// The page is red where something is wrong, and not where servers start and a run ends.
func TestNoRedForNormalNews(t *testing.T) {
	book := web.NewBook()
	server, err := web.Start(web.Options{Book: book, Meta: web.Meta{Mode: "live"}})
	if err != nil {
		t.Fatal(err)
	}
	at := func(step record.Step) {
		book.Record(record.Event{Time: machine.Second, Hop: record.Server, Step: step, Endpoint: "10.0.0.1:8000"})
	}
	at(record.ServerStarted)
	book.Gauge(machine.Second, "10.0.0.1:8000", web.Gauge{Ready: true})
	ctx := tab(t, 1200, 700)
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	do(t, ctx, "a server starts", chromium.Shows(".pod em", "starting"))
	red := func() bool {
		return do(t, ctx, "red", chromedp.Evaluate[bool](`(() => {
			const probe = document.body.appendChild(document.createElement("i"));
			probe.style.color = "var(--bad)";
			const bad = getComputedStyle(probe).color;
			probe.remove();
			return [...document.querySelectorAll("#page *")].some((e) => e.checkVisibility() && e.innerText &&
				(getComputedStyle(e).color === bad || e.matches(".notices.bad")));
		})()`))
	}
	do(t, ctx, "its notice", chromium.Shows(".notices", "server started"))
	if red() {
		t.Error("a server that starts is red")
	}
	at(record.IncidentBegan)
	do(t, ctx, "its notice", chromium.Shows(".notices.bad", "incident began"))
	if !red() {
		t.Error("an incident is not red")
	}
	book.Record(record.Event{Time: 2 * machine.Second, Hop: record.Server, Step: record.IncidentEnded})
	book.End()
	if err := server.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	do(t, ctx, "the end", chromium.Shows("header .state", "finished"))
}

// The header and the legends of plots show the chosen moment.
func TestFiguresOfTheMoment(t *testing.T) {
	server, session := fed(t, 10)
	for n := 1; n <= 10; n++ {
		l := record.Life{Request: record.RequestID(1, n), Number: n, Endpoint: "10.0.0.1:8000", Tokens: 2,
			Sent: machine.Time(n) * machine.Second}
		l.FirstGot = l.Sent + machine.Time(10*n)*machine.Millisecond
		l.LastGot = l.FirstGot + machine.Millisecond
		for e := range l.Events {
			session.Record(e)
		}
	}
	ctx := tab(t, 1500, 1000)
	do(t, ctx, "open", chromedp.Navigate(server.Link()+"#time"))
	values := func(want string) {
		t.Helper()
		do(t, ctx, want, until(fmt.Sprintf(`[%s, %s, %s].join(" ") === %q`, figure("TTFT p50"), figure("TTFT p90"),
			figure("TTFT p99"), want)))
	}
	legend := func(want string) {
		t.Helper()
		do(t, ctx, want, until(fmt.Sprintf(`([...document.querySelectorAll(".plot")].find((e) => `+
			`e.innerText.startsWith("TTFT")) || document.body).innerText.includes(%q)`, want)))
	}
	values("50.0 ms 90.0 ms 100.0 ms")
	legend("100.0 ms")
	do(t, ctx, "after five", slide(0.55))
	values("30.0 ms 50.0 ms 50.0 ms")
	legend("50.0 ms")
}

// The end of a run shows whether it kept its expectations and its SLO. The view Time shows when it did.
func TestVerdict(t *testing.T) {
	server, _ := played(t, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
name: verdict
pools:
  - {name: chat, replicas: 3, modelServer: {prefill: 200ms}}
workload: {requests: 40, concurrency: 6, slo: {ttft: 100ms}}
expectations: {outcomes: {completed: 100%}, spans: {ttft: {p50: 10ms}}}
`)
	ctx := tab(t, 1500, 1000)
	do(t, ctx, "open", chromedp.Navigate(server.Link()+"#time"))
	do(t, ctx, "expectations", chromium.Shows(".verdict", "1 of 2 expectations missed"))
	do(t, ctx, "the missed one", chromium.Shows(".verdict", "found 2"))
	do(t, ctx, "the SLO", chromium.Shows(".verdict", "SLO (ttft 100.0 ms) 0.0 % good ttft missed by 40"))
	do(t, ctx, "the end", slide(1))
	do(t, ctx, "over time", until(`/good\s*0 %/.test(([...document.querySelectorAll(".plot")].find((e) => `+
		`e.innerText.startsWith("Good requests")) || {}).innerText)`))
}

// Each class of traffic has a verdict of its own, the worst first.
func TestVerdictOfClasses(t *testing.T) {
	server, sum := played(t, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
name: classes
pools:
  - {name: chat, replicas: 3, modelServer: {prefill: 200ms}}
workload:
  requests: 40
  concurrency: 6
  classes: [{name: batch, share: 50%, slo: {ttft: 10s}}, {name: chat, share: 50%, slo: {ttft: 100ms}}]
`)
	ctx := tab(t, 1500, 1000)
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	all := sum.Classes[len(sum.Classes)-1]
	do(t, ctx, "each", until(fmt.Sprintf(`document.querySelector(".verdict")?.innerText.replace(/\s+/g, " ") === %q`,
		fmt.Sprintf("All classes %.1f %% good ttft missed by %d chat 0.0 %% good ttft missed by %[2]d "+
			"batch 100.0 %% good", 100*all.Attainment, all.Missed["ttft"]))))
}

// The table of a decision and what if name pods by their addresses, as the record and the terminal do.
func TestWhyNamesPodsByAddress(t *testing.T) {
	pd, err := os.ReadFile("../examples/pd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	server, _ := played(t, string(pd))
	ctx := tab(t, 1500, 1000)
	do(t, ctx, "open", chromedp.Navigate(server.Link()+"#request/req-1-000001"))
	do(t, ctx, "why", chromium.Click("#tab-why"))
	do(t, ctx, "removed", chromium.Shows(".decision", "decode-filter removed 10.0.0.3:8000"))
	do(t, ctx, "a scorer off", chromium.Click(".knob input[type=checkbox]"))
	do(t, ctx, "the others", chromium.Shows(".moved", "10.0.0.1:8000"))
	seen := do(t, ctx, "all text", chromedp.Evaluate[string](`document.querySelector(".detail").innerText`))
	if strings.Contains(seen, "pool-decode") || strings.Contains(seen, "pool-prefill") {
		t.Errorf("a pod has another name than its address:\n%s", seen)
	}
}
