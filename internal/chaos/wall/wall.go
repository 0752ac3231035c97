// Package wall plays one seed of chaos against the real stack, in wall time: real Envoy, sockets, goroutines. It checks
// the invariants of package chaos, and that the process has as many goroutines, descriptors and memory afterwards as
// before. Begin to read at Play.
package wall

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/chaos"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/live/stack"
)

// Options say what is played.
type Options struct {
	Base *chaos.Base
	Seed uint64
	// EnvoyPath names the Envoy to use; empty looks for one.
	EnvoyPath string
	Log       *slog.Logger
	// Start adds an exit code to an error of the start.
	Start func(context.Context, error) error
}

// Count counts what a process has at a time.
type Count struct {
	Goroutines int `json:"goroutines"`
	// Files are descriptors; 0 where the system does not show them.
	Files int `json:"files"`
	// HeapKiB is the live heap after a collection.
	HeapKiB int `json:"heapKiB"`
}

// Leaks holds the counts before the stack starts and after it has stopped, and the series of all metrics pages after
// half of the run and at its end, when nothing is in flight.
type Leaks struct {
	Before Count `json:"before"`
	After  Count `json:"after"`
	Half   int   `json:"seriesAfterHalf"`
	End    int   `json:"seriesAtEnd"`
}

// Bounds of what may grow: the series of new statuses and names, the heap of caches that live on, and goroutines and
// descriptors of the runtime itself.
const (
	moreSeries, seriesShare = 100, 4
	moreHeapKiB             = 16 << 10
	more                    = 8
)

// patience bounds the waits for requests, goroutines and descriptors to end.
const patience = 30 * time.Second

// Play plays a seed. The report has one seed. Its failure, if there is one, names what does not hold.
func Play(ctx context.Context, o Options) (*chaos.Report, *Leaks, error) {
	faults, v, err := o.Base.DrawLive(o.Seed)
	if err != nil {
		return nil, nil, err
	}
	s, err := v.Scenario(0)
	if err != nil {
		return nil, nil, err
	}
	leaks, watch := &Leaks{Before: count()}, chaos.NewWatch()
	st, err := stack.Start(ctx, stack.Options{Scenario: s, EnvoyPath: o.EnvoyPath, Log: o.Log,
		Recorder: record.Recorder(watch)})
	if err != nil {
		return nil, nil, o.Start(ctx, err)
	}
	for _, p := range st.Pools {
		watch.Pool(p.Endpoints)
	}
	half := make(chan int, 1)
	running, end := context.WithCancel(ctx)
	go func() {
		pause.For(running, o.Base.Span/2)
		half <- series(ctx, st)
	}()
	err = st.Load(ctx)
	end()
	leaks.Half = <-half
	broken := ""
	fail := func(what string) {
		broken = cmp.Or(broken, what)
	}
	if err == nil {
		fail(idle(ctx, st))
		leaks.End = series(ctx, st)
		for _, c := range st.CheckKV(ctx) {
			if !c.OK() {
				fail(fmt.Sprintf("the index %s is not the union of the engines' blocks: %d are missing, %d too many",
					c.Index, c.Missing, c.Extra))
			}
		}
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if stopped := st.Stop(stop); err == nil {
		err = stopped
	}
	if err == nil {
		fail(watch.Broken())
		fail(leaks.judge())
	}
	return o.Base.Single(o.Seed, faults, watch, broken), leaks, err
}

// idle waits until no part has a request, and returns which has one; empty for none.
func idle(ctx context.Context, st *stack.Stack) (left string) {
	for end := time.Now().Add(patience); ; {
		left = inFlight(ctx, st)
		if left == "" || time.Now().After(end) || !pause.For(ctx, 10*time.Millisecond) {
			return left
		}
	}
}

func inFlight(ctx context.Context, st *stack.Stack) string {
	active, err := st.Gateway.Active(ctx)
	switch {
	case err != nil:
		return err.Error()
	case !active.Idle():
		return fmt.Sprintf("Envoy still has requests: %+v", active)
	}
	for _, p := range st.Pools {
		for i, k := range p.Pickers {
			if n := k.Server().Active(); n > 0 {
				return fmt.Sprintf("picker %d of %s still has %d streams", i, p.Name(), n)
			}
		}
		for i, x := range p.Fleet.Servers() {
			st, blocks, _ := x.Holds()
			if p.Transfers() {
				blocks = 0 // prefill servers keep blocks until others fetch them, or for a time
			}
			if n := x.InFlight() + st.Running + st.Waiting; n+blocks > 0 {
				return fmt.Sprintf("%s still has %d requests and %d KV blocks", p.Names[i], n, blocks)
			}
		}
		for i, pod := range p.Pods {
			if pod.Sidecar != nil && pod.Sidecar.InFlight() > 0 {
				return fmt.Sprintf("the sidecar of %s still has %d requests", p.Names[i], pod.Sidecar.InFlight())
			}
		}
	}
	return ""
}

// judge waits until the process has what it had before, and returns what it has more.
func (l *Leaks) judge() string {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		l.After = count()
		if grown := l.grown(); grown == "" || time.Now().After(end) {
			return grown
		}
	}
}

// grown returns what has grown beyond its bound; empty for nothing.
func (l *Leaks) grown() string {
	switch b, a := l.Before, l.After; {
	case a.Goroutines > b.Goroutines+more:
		return fmt.Sprintf("%d goroutines before the run, and %d after it", b.Goroutines, a.Goroutines)
	case a.Files > b.Files+more:
		return fmt.Sprintf("%d open files before the run, and %d after it", b.Files, a.Files)
	case a.HeapKiB > b.HeapKiB+moreHeapKiB:
		return fmt.Sprintf("a heap of %d KiB before the run, and of %d KiB after it", b.HeapKiB, a.HeapKiB)
	case l.End > l.Half+l.Half/seriesShare+moreSeries:
		return fmt.Sprintf("%d series of metrics after half of the run, and %d at its end", l.Half, l.End)
	}
	return ""
}

func count() Count {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c := Count{Goroutines: runtime.NumGoroutine(), HeapKiB: int(m.HeapAlloc >> 10)} //nolint:gosec // far below 2^63
	if list, err := os.ReadDir("/proc/self/fd"); err == nil {
		c.Files = len(list)
	}
	return c
}

// maxPage bounds a page of metrics, in bytes.
const maxPage = 64 << 20

// series counts the series on all pages of metrics. A part that is down has none.
func series(ctx context.Context, st *stack.Stack) (n int) {
	t := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: t, Timeout: patience}
	for _, target := range st.Addresses().Targets {
		if target.Labels["job"] == "envoy" {
			continue
		}
		path := target.Labels["__metrics_path__"]
		for _, at := range target.Targets {
			page, err := serve.Fetch(ctx, client, http.MethodGet, "http://"+at+path, nil, maxPage)
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(page)) {
				if line[0] != '#' && strings.Contains(line, " ") {
					n++
				}
			}
		}
	}
	return n
}

// Write prints the counts for people.
func (l *Leaks) Write(to io.Writer) error {
	_, err := fmt.Fprintf(to, "goroutines  %d before, %d after\nfiles       %d before, %d after\n"+
		"heap        %d KiB before, %d KiB after\nseries      %d after half of the run, %d at its end\n",
		l.Before.Goroutines, l.After.Goroutines, l.Before.Files, l.After.Files, l.Before.HeapKiB, l.After.HeapKiB,
		l.Half, l.End)
	return err
}
