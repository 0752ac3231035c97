// Package replicas drives, in wall time, the parts that decide the number of servers: a Deployment, and the autoscaler
// over it. The autoscaler reads its figures from the pages that Prometheus would scrape. The caller, who owns the
// servers, starts and stops them.
package replicas

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler/promql"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
	"github.com/windtunnel/windtunnel/live/drive"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Target is a page that Prometheus scrapes.
type Target struct {
	// Name is the pod's name, and the label pod of the page's samples.
	Name string
	// Address is host:port; "" while the pod is not there.
	Address string
}

// Options are the parts to drive, and the callbacks that carry out their decisions.
type Options struct {
	Deployment *deployment.Deployment
	// Scaler, if not nil, decides the number of servers.
	Scaler *autoscaler.Config
	// Happens carries out an effect on a pod. Calls do not overlap, and may take long.
	Happens func(deployment.Effect)
	// Scaled receives each change of the number of servers, before Happens gets the effects on pods.
	Scaled func(autoscaler.Effect)
	// Pickers and Servers return the pages of endpoint pickers and of model servers at each scrape. Servers is not
	// called if no query reads their metrics.
	Pickers, Servers func() []Target
	// Log logs the pages that could not be read.
	Log *slog.Logger
}

// Driver drives a Deployment and its autoscaler. One goroutine carries out the machines' effects, in order.
type Driver struct {
	o     Options
	began time.Time
	pod   *drive.Driver[deployment.Message, *machine.Effects[deployment.Effect]]

	mu     sync.Mutex // guards the fields below
	scaler *scaler
	work   []func()
	more   *sync.Cond
	closed bool
	done   sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
}

// Start starts the driving.
func Start(o Options) *Driver {
	d := &Driver{o: o, began: time.Now()}
	d.more = sync.NewCond(&d.mu)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.pod = drive.New(drive.Options[deployment.Message, *machine.Effects[deployment.Effect]]{Machine: o.Deployment,
		Effects: new(machine.Effects[deployment.Effect]), Now: d.now,
		Carry: func(_ machine.Time, fx *machine.Effects[deployment.Effect], i int) {
			e, status := fx.List[i], o.Deployment.Status()
			d.do(func() {
				o.Happens(e)
				if x := d.scaling(); x != nil {
					x.scales.Input(autoscaler.Status(status))
				}
			})
		}})
	if o.Scaler != nil {
		d.Scale(o.Scaler)
	}
	d.done.Go(d.carryOut)
	return d
}

// scaler is an autoscaler that decides the number of servers until another one replaces it.
type scaler struct {
	d      *Driver
	c      *autoscaler.Config
	m      *autoscaler.Machine
	scales *drive.Driver[autoscaler.Message, *machine.Effects[autoscaler.Effect]]
	ready  chan struct{} // closed once scales is set
	coming sync.Map      // the Targets whose page was requested and has not arrived yet
}

// Scale replaces the autoscaler from now on. The new one starts from the wanted number of servers.
func (d *Driver) Scale(c *autoscaler.Config) {
	x := &scaler{d: d, c: c, m: autoscaler.New(*c, d.Status()), ready: make(chan struct{})}
	began := d.now()
	now := func() machine.Time { return d.now() - began }
	x.scales = drive.New(drive.Options[autoscaler.Message, *machine.Effects[autoscaler.Effect]]{Machine: x.m,
		Effects: new(machine.Effects[autoscaler.Effect]), Now: now,
		Carry: func(_ machine.Time, fx *machine.Effects[autoscaler.Effect], i int) {
			switch e := fx.List[i]; e.Kind {
			case autoscaler.Scrape:
				d.done.Go(x.scrape)
			case autoscaler.Scale:
				d.do(func() {
					if d.scaling() == x {
						d.o.Scaled(e)
						d.pod.Input(deployment.Scale{Replicas: e.To})
					}
				})
			}
		}})
	d.mu.Lock()
	was := d.scaler
	d.scaler = x
	d.mu.Unlock()
	close(x.ready)
	if was != nil {
		was.scales.Stop()
	}
}

func (d *Driver) scaling() *scaler {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.scaler
}

func (d *Driver) now() machine.Time { return machine.FromDuration(time.Since(d.began)) }

// Input sends the Deployment a message.
func (d *Driver) Input(m deployment.Message) { d.pod.Input(m) }

// Add makes n more servers join.
func (d *Driver) Add(n int) {
	d.pod.With(func(now machine.Time, fx *machine.Effects[deployment.Effect]) {
		d.o.Deployment.Input(now, deployment.Scale{Replicas: d.o.Deployment.Status().Wanted + n}, fx)
	})
}

// Status returns the state of the Deployment.
func (d *Driver) Status() (s deployment.Status) {
	d.pod.With(func(machine.Time, *machine.Effects[deployment.Effect]) { s = d.o.Deployment.Status() })
	return s
}

// Scales reports whether an autoscaler decides the number of servers.
func (d *Driver) Scales() bool { return d.scaling() != nil }

// Go runs a function in a goroutine. The function must return when ctx ends; Stop waits for it.
func (d *Driver) Go(what func(ctx context.Context)) { d.done.Go(func() { what(d.ctx) }) }

// Stop ends the driving. Afterwards no server joins or leaves.
func (d *Driver) Stop() {
	if x := d.scaling(); x != nil {
		x.scales.Stop()
	}
	d.pod.Stop()
	d.cancel()
	d.mu.Lock()
	d.closed = true
	d.more.Broadcast()
	d.mu.Unlock()
	d.done.Wait()
}

// do queues a function behind all earlier ones.
func (d *Driver) do(what func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.work = append(d.work, what)
	d.more.Signal()
}

func (d *Driver) carryOut() {
	for {
		d.mu.Lock()
		for len(d.work) == 0 && !d.closed {
			d.more.Wait()
		}
		if d.closed {
			d.mu.Unlock()
			return
		}
		what := d.work[0]
		d.work = d.work[1:]
		d.mu.Unlock()
		what()
	}
}

// scrapeTimeout is Prometheus' scrape_timeout.
const scrapeTimeout = 10 * time.Second

// scrape reads the pages that Prometheus would read, all at once. It does not request a page again that has not arrived
// yet, because on a machine that cannot keep up such requests would accumulate.
func (x *scaler) scrape() {
	<-x.ready
	list := x.d.o.Pickers()
	if slices.ContainsFunc(x.c.Names(), autoscaler.OfServers) {
		list = append(list, x.d.o.Servers()...)
	}
	for _, t := range list {
		if _, coming := x.coming.LoadOrStore(t, true); coming {
			continue
		}
		x.d.done.Go(func() {
			defer x.coming.Delete(t)
			x.scales.Input(x.read(t))
		})
	}
}

// read scrapes a target.
func (x *scaler) read(t Target) autoscaler.Scraped {
	got := autoscaler.Scraped{Target: t.Name, Failed: true}
	if t.Address == "" {
		return got
	}
	ctx, cancel := context.WithTimeout(x.d.ctx, scrapeTimeout)
	defer cancel()
	samples, err := x.page(ctx, "http://"+t.Address+"/metrics", t.Name)
	if got.Samples, got.Failed = samples, err != nil; err != nil && x.d.ctx.Err() == nil {
		x.d.o.Log.Debug("a page of metrics was not read", "target", t.Name, "error", err)
	}
	return got
}

// page returns those samples of a page that some query reads.
func (x *scaler) page(ctx context.Context, url, target string) ([]promql.Sample, error) {
	text, err := serve.Fetch(ctx, scrapes, http.MethodGet, url, nil, metrics.MaxPageBytes+1)
	if err != nil {
		return nil, err
	}
	page, err := metrics.ParseSeries(text, func(name string) bool { return autoscaler.Known(name) && x.m.Wants(name) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return promql.Of(page, metrics.Label{Name: "pod", Value: target}), nil
}

// scrapes is the client for the pages.
var scrapes = &http.Client{CheckRedirect: serve.Stay,
	Transport: &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute}}
