package web_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/chromium"
	"github.com/windtunnel/windtunnel/web"
)

// The waterfall marks what the client waited for without gaps, fills Envoy's lane, shows the time to the first token
// alone and then everything again, and a search leaves the steps that have its words.
func TestWaterfall(t *testing.T) {
	server, _ := played(t, few)
	ctx := tab(t, 1400, 900)
	do(t, ctx, "open", chromedp.Navigate(server.Link()+"#request/req-1-000007"))
	do(t, ctx, "the longest wait", chromium.Shows(".waited", "prefill 200.0 ms (98 %)"))
	do(t, ctx, "and the shorter ones", chromium.Shows(".waited", "to the picker"))
	do(t, ctx, "Envoy's lane", until(`document.querySelectorAll(".lane.envoy .bar").length === 5`))
	do(t, ctx, "no gaps", until(`(() => { const at = [...document.querySelectorAll(".track .critical")].map((e) => [parseFloat(e.style.left), parseFloat(e.style.width.match(/([\d.e-]+)%/)[1])]).sort((a, b) => a[0] - b[0]);
		let end = 0; for (const [left, wide] of at) { if (Math.abs(left - end) > 1e-3) return false; end = left + wide; } return Math.abs(end - 100) < 1e-3; })()`))
	wide := `parseFloat([...document.querySelectorAll(".bar.prefill")][0].style.width.match(/([\d.]+)%/)[1])`
	do(t, ctx, "all of it", until(wide+` < 50`))
	do(t, ctx, "zoom", chromium.Click(`//button[.="Zoom to the first token"]`))
	do(t, ctx, "the first token", until(wide+` > 90`))
	do(t, ctx, "back", chromium.Click(`//button[.="Show the whole request"]`))
	do(t, ctx, "all again", until(wide+` < 50`))
	do(t, ctx, "search", chromedp.SendKeys(`.search input`, "server part2"))
	do(t, ctx, "found", until(`document.querySelector(".search [role=status]").innerText === "1 of 19 steps" && `+
		`[...document.querySelectorAll(".steps li")].map((e) => e.querySelector(".step").innerText).join() === "part2 received"`))
}

// A request that its server's death failed: the hold is drawn to its end, and the incident is marked.
func TestWaterfallOfAFailedHold(t *testing.T) {
	book := web.NewBook()
	server, err := web.Start(web.Options{Book: book, Meta: web.Meta{Mode: "live"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	const endpoint = "10.0.0.1:8000"
	tell := func(ms int, request string, hop record.Hop, step record.Step, details ...record.Detail) {
		e := record.Event{Time: machine.Time(ms) * machine.Millisecond, Request: request, Hop: hop, Step: step,
			Details: details}
		if hop != record.Client {
			e.Endpoint = endpoint
		}
		book.Record(e)
	}
	id := record.RequestID(1, 1)
	tell(0, "", record.Server, record.IncidentBegan, record.D("what", "slow-down")) // over before the request
	tell(50, "", record.Server, record.IncidentEnded, record.D("what", "slow-down"))
	calm := record.RequestID(1, 2)
	tell(60, calm, record.Client, record.RequestSent)
	tell(90, calm, record.Client, record.Finished, record.D("outcome", string(record.Completed)))
	tell(100, id, record.Client, record.RequestSent)
	tell(101, id, record.EPP, record.RequestReceived)
	tell(101, id, record.EPP, record.EndpointPicked)
	tell(102, id, record.EPP, record.Part1Sent)
	tell(103, id, record.Server, record.Part1Received)
	tell(103, id, record.Server, record.PrefillStarted)
	tell(150, "", record.Server, record.IncidentBegan, record.D("what", "crash"))
	tell(200, id, record.EPP, record.Answered, record.D("status", 503))
	tell(300, id, record.Client, record.Finished, record.D("outcome", string(record.Unavailable)))
	ctx := tab(t, 1400, 900)
	do(t, ctx, "open", chromedp.Navigate(server.Link()+"#request/"+id))
	do(t, ctx, "the hold to its end", until(`(() => { const e = document.querySelector(".bar.hold.failed");
		return !!e && e.innerText === "held open, failed 98.0 ms" && e.style.left === "1%" && e.style.width.includes("49%"); })()`))
	do(t, ctx, "the server's prefill to the end", chromium.Shows(".bar.prefill.open", "prefill, not ended 197.0 ms"))
	do(t, ctx, "the incident of its time", until(
		`[...document.querySelectorAll(".lane.incident .bar")].map((e) => e.innerText).join() === "crash at 10.0.0.1:8000 150.0 ms"`))
	do(t, ctx, "marked in all lanes", until(`document.querySelectorAll(".track .hit").length === `+
		`document.querySelectorAll(".lane").length && document.querySelector(".hit").style.left === "25%"`))
	do(t, ctx, "another", chromedp.Evaluate[any](fmt.Sprintf(`location.hash = "request/%s"; 0`, calm)))
	do(t, ctx, "without an incident", until(`document.querySelectorAll(".lane").length === 1`))
}

// A pod has one name in the topology and in a waterfall: the address that the picker chose, also behind a sidecar.
func TestOneNameOfAPod(t *testing.T) {
	pd, err := os.ReadFile("../examples/pd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	server, _ := played(t, string(pd))
	ctx := tab(t, 1400, 900)
	do(t, ctx, "open", chromedp.Navigate(server.Link()))
	do(t, ctx, "pods", until(`document.querySelectorAll(".pod").length === 4`))
	do(t, ctx, "kept", chromedp.Evaluate[any](`window.pods = [...document.querySelectorAll(".pod .name")].map((e) => e.innerText); 0`))
	do(t, ctx, "a request", chromedp.Evaluate[any](`location.hash = "request/req-1-000001"; 0`))
	do(t, ctx, "the same names", until(`(() => { const lanes = [...document.querySelectorAll(".lane.server > .hop")].map((e) => e.innerText);
		return lanes.length === 2 && lanes.every((x) => pods.includes(x)); })()`))
}
