package web_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/web"
)

// On an endless run, the memory of an open page stops growing once everything is at its bound, in the browser and in
// windtunnel. Requests start and end meanwhile, and the test opens one view after another. WINDTUNNEL_UI_SOAK sets
// the duration.
func TestSoak(t *testing.T) {
	long, err := time.ParseDuration(os.Getenv("WINDTUNNEL_UI_SOAK"))
	if err != nil {
		t.Skip("make soak-ui runs it: WINDTUNNEL_UI_SOAK is the duration, such as 5m")
	}
	const kept, second, samples = 20_000, 50, 40 // 700 events per second
	book := web.NewSmallBook(kept)
	session, err := report.Start(report.Options{Out: new(strings.Builder), Also: book, Detail: report.Progress,
		Requests: report.MaxSample}) // the run's sample is allocated at the start
	if err != nil {
		t.Fatal(err)
	}
	book.Measure(session)
	server, err := web.Start(web.Options{Book: book, Meta: web.Meta{Mode: "live", Scenario: "soak"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	n := 0
	more := func(by int) {
		for range by {
			n++
			at := machine.Time(n) * machine.Second / second
			lived(session, n, at)
			book.Gauge(at, fmt.Sprintf("10.0.0.%d:8000", 1+n%16),
				web.Gauge{Running: n % 7, KV: float64(n%100) / 100, Ready: true})
		}
	}
	more(2 * kept)
	ctx, end := chromedp.NewContext(first(t))
	t.Cleanup(end)
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1400, 900), chromedp.Navigate(server.Link())); err != nil {
		t.Fatal(err)
	}
	var page, own []float64
	views := []string{"flow", "requests", "time", "request"}
	tick := time.NewTicker(time.Second / 10)
	defer tick.Stop()
	began := time.Now()
	for len(page) < samples {
		<-tick.C
		more(second / 10)
		if time.Since(began) < long*time.Duration(len(page)+1)/samples {
			continue
		}
		view := views[len(page)%len(views)]
		if view == "request" {
			view = fmt.Sprintf("request/req-1-%06d", n-500)
		}
		do(t, ctx, view, chromedp.Evaluate[any](fmt.Sprintf(`location.hash = %q; 0`, view)))
		for range 2 {
			if _, err := chromedp.Call(ctx, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
				t.Fatal(err)
			}
		}
		heap, err := chromedp.Call(ctx, cdpruntime.GetHeapUsage, cdp.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		profile(t, len(page))
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		page, own = append(page, heap.UsedSize/(1<<20)), append(own, float64(m.HeapAlloc)/(1<<20))
		t.Logf("%8s  %7d requests  page %6.1f MiB  windtunnel %6.1f MiB  %s  %s", time.Since(began).Round(time.Second),
			n, page[len(page)-1], own[len(own)-1], view,
			do(t, ctx, "what is kept", chromedp.Evaluate[string](keptByPage, chromedp.EvalAwaitPromise)))
	}
	for what, x := range map[string][]float64{"the page's heap": page, "windtunnel's heap": own} {
		early, late := mean(x[samples/6:samples/2]), mean(x[samples/2+samples/6:])
		t.Logf("%s: %.1f MiB, and %.1f MiB later: %+.1f MiB in an hour", what, early, late,
			(late-early)/(long.Hours()/2))
		if late > 1.1*early+1 {
			t.Errorf("%s grows: %.1f MiB on average, and %.1f MiB later", what, early, late)
		}
	}
}

// keptByPage counts the entries of the page's store and the nodes of its document.
const keptByPage = `import(document.querySelector("link[rel=modulepreload][href$='/store.js']").href).then(({store: s}) => Object.entries({
	rows: s.rows.length, ids: s.byId.size, open: s.open.size, names: s.names.length, gauges: [...s.gauges.values()].reduce((n, x) => n + x.length, 0), notices: s.notices.length, failed: s.failed.length,
	touched: s.touched ? s.touched.size : 0, windows: s.metrics ? s.metrics.windows.length : 0, nodes: document.querySelectorAll("*").length}).map(([k, v]) => k + " " + v).join(", "))`

// profile writes a profile of windtunnel's heap if WINDTUNNEL_UI_SOAK_PROFILES names a directory. Compare two: go
// tool pprof -diff_base heap-05 heap-29.
func profile(t *testing.T, n int) {
	t.Helper()
	dir := os.Getenv("WINDTUNNEL_UI_SOAK_PROFILES")
	if dir == "" {
		return
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("heap-%02d", n)))
	if err == nil {
		err = errors.Join(pprof.Lookup("heap").WriteTo(f, 0), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func first(t *testing.T) context.Context {
	t.Helper()
	ctx, err := browser()
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

func mean(x []float64) (m float64) {
	for _, v := range x {
		m += v / float64(len(x))
	}
	return m
}
