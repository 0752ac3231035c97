package web_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/chromium"
	"github.com/windtunnel/windtunnel/internal/gate"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/web"
)

// fed returns a page and its session. The benchmark generates the run's events.
func fed(b testing.TB, requests int) (*web.Server, *report.Session) {
	book := web.NewBook()
	session, err := report.Start(
		report.Options{Out: new(strings.Builder), Also: book, Detail: report.Progress, Requests: requests})
	if err != nil {
		b.Fatal(err)
	}
	book.Measure(session)
	server, err := web.Start(web.Options{Book: book, Meta: web.Meta{Mode: "live", Scenario: "benchmark"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Stop(context.Background()) })
	return server, session
}

// lived records a whole request, in about ten events.
func lived(to record.Recorder, n int, at machine.Time) {
	l := record.Life{Request: record.RequestID(1, n), Number: n, Endpoint: fmt.Sprintf("10.0.0.%d:8000", 1+n%16),
		Prompt: 400, Cached: 100, Tokens: 50, Sent: at}
	for i, t := range []*machine.Time{&l.Picked, &l.Reached, &l.Started, &l.First, &l.FirstSeen, &l.FirstGot, &l.Last,
		&l.LastSeen, &l.LastGot} {
		*t = at + machine.Time(i+1)*20*machine.Millisecond
	}
	for e := range l.Events {
		to.Record(e)
	}
}

func opened(b *testing.B, server *web.Server) context.Context {
	first, err := browser()
	if err != nil {
		b.Fatal(err)
	}
	ctx, end := chromedp.NewContext(first)
	b.Cleanup(end)
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1400, 900), chromedp.Navigate(server.Link())); err != nil {
		b.Fatal(err)
	}
	return ctx
}

func asked[T any](b *testing.B, ctx context.Context, expression string) T {
	b.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// BenchmarkUIFirstView measures the time from the link to the first view of a run with 10,000 requests.
func BenchmarkUIFirstView(b *testing.B) {
	server, session := fed(b, 10_000)
	for n := 1; n <= 10_000; n++ {
		lived(session, n, machine.Time(n)*machine.Millisecond)
	}
	opened(b, server) // starts the browser
	var took time.Duration
	for b.Loop() {
		began := time.Now()
		ctx := opened(b, server)
		if _, err := chromedp.Run(ctx,
			chromium.Shows(".metrics", "10,000")); err != nil {
			b.Fatal(err)
		}
		took += time.Since(began)
	}
	gate.AtMost(b, took.Seconds()/float64(b.N), "s/first-view", 1)
}

// BenchmarkUIFrames measures the topology's frames per second at 2,000 events per second, and the page's memory
// afterwards.
func BenchmarkUIFrames(b *testing.B) {
	const second, requests = 150, 6 * 150 // a request has some 14 events
	server, session := fed(b, requests)
	ctx := opened(b, server)
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](`!!document.querySelector(".stage canvas")`)); err != nil {
		b.Fatal(err)
	}
	var frames float64
	for b.Loop() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			tick := time.NewTicker(time.Second / second)
			defer tick.Stop()
			for n := 1; n <= requests; n++ {
				lived(session, n, machine.Time(n)*machine.Second/second)
				<-tick.C
			}
		}()
		frames = asked[float64](b, ctx,
			`new Promise((r) => { let n = 0; const t0 = performance.now(); const f = (t) => { n++; if (t - t0 > `+
				`4000) r(n / ((t - t0) / 1000)); else requestAnimationFrame(f); }; requestAnimationFrame(f); })`)
		<-done
	}
	gate.AtLeast(b, frames, "frames/s", 30)
	b.ReportMetric(asked[float64](b, ctx, `performance.memory ? performance.memory.usedJSHeapSize / 1048576 : 0`),
		"MiB-heap")
}

// BenchmarkUIScroll measures the longest frame while it scrolls through 100,000 rows.
func BenchmarkUIScroll(b *testing.B) {
	const rows = 100_000
	server, session := fed(b, rows)
	for n := 1; n <= rows; n++ {
		lived(session, n, machine.Time(n)*machine.Millisecond)
	}
	ctx := opened(b, server)
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[any](`location.hash = "requests"; 0`)); err != nil {
		b.Fatal(err)
	}
	if _, err := chromedp.Run(ctx,
		chromedp.Poll[bool](`(document.querySelector("#shown")||{innerText:""}).innerText.startsWith("100,000")`,
			chromedp.WithPollingTimeout(time.Minute))); err != nil {
		b.Fatal(err)
	}
	asked[any](b, ctx, `new Promise((r) => setTimeout(r, 1500))`) // the work of loading is over
	var got []float64
	scroll := func() {
		got = asked[[]float64](b, ctx, `new Promise((r) => { const g = document.querySelector(".grid"), took = []; let last = performance.now(), i = 0;
			const f = (t) => { took.push(t - last); last = t; g.scrollTop = (g.scrollHeight * (i * 37 % 400)) / 400; if (++i < 240) requestAnimationFrame(f); else { took.sort((a, b) => a - b); r([took[took.length >> 1], took[Math.floor(took.length * 0.99)], took[took.length - 1]]); } };
			requestAnimationFrame(f); })`)
	}
	var t traced
	for b.Loop() {
		t = trace(b, ctx, scroll)
	}
	b.ReportMetric(1e3*t.cpu, "cpu-ms/longest-task")
	b.ReportMetric(1e3*t.wall, "ms/longest-task")
	b.ReportMetric(1e3*t.total/240, "cpu-ms/frame")
	b.ReportMetric(1e3*t.script/240, "script-ms/frame")
	b.ReportMetric(1e3*t.layouts/240, "layout-ms/frame")
	b.Logf("the longest task, in ms: %v", t.slowest)
	b.ReportMetric(got[0], "ms/p50-frame")
	b.ReportMetric(got[1], "ms/p99-frame")
	gate.AtMost(b, got[2], "ms/longest-frame", 50)
}

// BenchmarkRecord measures the page's cost per event, compared with a run without a page.
func BenchmarkRecord(b *testing.B) {
	for _, with := range []bool{false, true} {
		b.Run(map[bool]string{false: "without", true: "with"}[with], func(b *testing.B) {
			o := report.Options{Out: new(strings.Builder), Detail: report.Progress}
			if with {
				o.Also = web.NewBook()
			}
			session, err := report.Start(o)
			if err != nil {
				b.Fatal(err)
			}
			if with {
				o.Also.(*web.Book).Measure(session)
			}
			n := 0
			for b.Loop() {
				n++
				lived(session, n, machine.Time(n)*machine.Millisecond)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/14, "ns/event")
		})
	}
}
