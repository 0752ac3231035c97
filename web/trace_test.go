package web_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"
)

// traced measures the page's main thread, as Chromium reports it, in CPU seconds and in wall seconds. Other programs
// on the machine lengthen only the wall seconds.
type traced struct {
	cpu, wall       float64            // of the longest task
	slowest         map[string]float64 // its parts, in milliseconds
	total           float64            // CPU time of all tasks
	script, layouts float64            // parts of total
}

// trace measures the page while f runs.
func trace(b *testing.B, ctx context.Context, f func()) (t traced) {
	b.Helper()
	fail := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	events, stop := context.WithCancel(ctx)
	defer stop()
	parts, complete := chromedp.Events(events, tracing.DataCollected), chromedp.Events(events, tracing.TracingComplete)
	type event struct {
		Name, Ph  string
		PID, TID  int
		TS        float64
		Dur, Tdur float64
		Args      struct{ Name string }
	}
	var all []event
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for part, err := range parts {
			if err != nil {
				return
			}
			for _, v := range part.Value {
				var e event
				if json.Unmarshal(v, &e) == nil {
					all = append(all, e)
				}
			}
		}
	}()
	_, err := chromedp.Call(ctx, performance.Enable,
		performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks})
	fail(err)
	metrics := func() map[string]float64 {
		r, err := chromedp.Call(ctx, performance.GetMetrics, cdp.Empty{})
		fail(err)
		out := map[string]float64{}
		for _, m := range r.Metrics {
			out[m.Name] = m.Value
		}
		return out
	}
	_, err = chromedp.Call(ctx, tracing.Start,
		tracing.StartParams{TransferMode: tracing.StartTransferModeReportEvents,
			TraceConfig: &tracing.TraceConfig{
				IncludedCategories: []string{"toplevel", "devtools.timeline", "__metadata"}}})
	fail(err)
	before := metrics()
	f()
	after := metrics()
	_, err = chromedp.Call(ctx, tracing.End, cdp.Empty{})
	fail(err)
	for _, err := range complete {
		fail(err)
		break
	}
	stop()
	<-collected
	t.total, t.script, t.layouts = after["TaskDuration"]-before["TaskDuration"],
		after["ScriptDuration"]-before["ScriptDuration"],
		after["LayoutDuration"]+after["RecalcStyleDuration"]-before["LayoutDuration"]-before["RecalcStyleDuration"]
	type thread struct{ pid, tid int }
	page := map[thread]bool{}
	for _, e := range all {
		if e.Name == "thread_name" && e.Args.Name == "CrRendererMain" {
			page[thread{e.PID, e.TID}] = true
		}
	}
	var longest event
	for _, e := range all {
		if page[thread{e.PID, e.TID}] && (e.Name == "ThreadControllerImpl::RunTask" || e.Name == "RunTask") &&
			e.Tdur > longest.Tdur {
			longest = e
		}
	}
	t.cpu, t.wall, t.slowest = longest.Tdur/1e6, longest.Dur/1e6, map[string]float64{}
	for _, e := range all { // the parts of the longest task
		if e.PID == longest.PID && e.TID == longest.TID && e.TS >= longest.TS && e.TS <= longest.TS+longest.Dur &&
			e.Tdur > 1000 && e.Name != longest.Name {
			t.slowest[e.Name] = max(t.slowest[e.Name], e.Tdur/1e3)
		}
	}
	return t
}
