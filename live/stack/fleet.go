package stack

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/windtunnel/windtunnel/core/autoscaler"
	"github.com/windtunnel/windtunnel/core/autoscaler/promql"
	"github.com/windtunnel/windtunnel/core/deployment"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/metrics"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/drive"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/sidecar"
	"github.com/windtunnel/windtunnel/scenario"
)

// fleet is servers of a pool that come and go, with what decides how many there are. What a
// machine says is carried out by one goroutine, in order, since it may take long.
type fleet struct {
	of     *Pool
	d      scenario.Deployment
	m      *deployment.Deployment
	scaler *autoscaler.Machine // nil where incidents alone change anything
	pods   []string            // names of model servers whose pages it reads; nil reads none
	began  time.Time

	pod    *drive.Driver[deployment.Message, *machine.Effects[deployment.Effect]]
	scales *drive.Driver[autoscaler.Message, *machine.Effects[autoscaler.Effect]]

	mu      sync.Mutex
	work    []func()
	more    *sync.Cond
	closed  bool
	done    sync.WaitGroup
	leaving map[int]leaving // pods that finish what they have
	ctx     context.Context
	cancel  context.CancelFunc
}

// leaving is a server that finishes what it has; cut is how many requests broke off, once gone
// is closed.
type leaving struct {
	kill context.CancelFunc
	gone chan struct{}
	cut  *int
}

// newFleets are those of a pool whose servers come and go; which are there at first is known
// from then on.
func (s *Pool) newFleets() {
	if !s.pool.Lives() {
		return
	}
	s.absent, s.lived = make([]bool, s.pool.Servers()), make([]bool, s.pool.Servers())
	for _, d := range s.pool.Deployments() {
		f := &fleet{of: s, d: d, m: deployment.New(s.o.Scenario.Lifecycle(&d)), leaving: map[int]leaving{}}
		f.more = sync.NewCond(&f.mu)
		s.fleets = append(s.fleets, f)
		for i := d.Replicas; i < d.Places; i++ {
			s.absent[d.First+i] = true
		}
	}
}

// ready are the addresses of the servers that pickers may choose from.
func (s *Pool) ready() (out []string) {
	for i, e := range s.Endpoints {
		if !s.isAbsent(i) {
			out = append(out, e)
		}
	}
	return out
}

func (s *Pool) isAbsent(i int) bool {
	s.lives.Lock()
	defer s.lives.Unlock()
	return s.absent != nil && s.absent[i]
}

// everThere says whether a server has been an endpoint at some time.
func (s *Pool) everThere(i int) bool {
	s.lives.Lock()
	defer s.lives.Unlock()
	return s.absent == nil || !s.absent[i] || s.lived[i]
}

// endpointsFileOfEnvoy is where Envoy reads a pool's endpoints, where it has to know those that
// come and go; "" where it need not.
func (s *Pool) endpointsFileOfEnvoy() string {
	if s.fleets == nil || s.pool.FailureMode != scenario.FailOpen && s.pool.Picked() {
		return ""
	}
	return filepath.Join(s.Dir, "endpoints-"+s.pool.Name+".yaml")
}

// follow has a server be an endpoint, or none any more, for Envoy and the pickers: Envoy
// knows one before a picker may choose it, and forgets it afterwards.
func (s *Pool) follow(i int, absent bool) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	tell := func() error {
		if s.tellEnvoy != nil {
			return s.tellEnvoy(s.ready())
		}
		if file := s.endpointsFileOfEnvoy(); file != "" {
			return envoy.WriteEndpoints(file, s.pool.Name, s.ready())
		}
		return nil
	}
	s.lives.Lock()
	s.absent[i], s.lived[i] = absent, true
	s.lives.Unlock()
	if !absent {
		if err := tell(); err != nil {
			return err
		}
	}
	err := s.tellPickers()
	if err == nil && absent {
		err = tell()
	}
	if err == nil && s.o.EPP.given() {
		err = s.writeEndpoints()
	}
	return err
}

// tellPickers tells which endpoints may be chosen; Pool.changing is around it.
func (s *Pool) tellPickers() error {
	for _, k := range s.Pickers {
		list, err := s.pickerEndpoints() // each picker has its own
		if err != nil {
			return err
		}
		if !k.down {
			k.now().SetEndpoints(list)
		}
	}
	return nil
}

// begin has servers come and go from now on.
func (f *fleet) begin() {
	s := f.of
	f.began = time.Now()
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.done.Go(f.carryOut)
	now := func() machine.Time { return machine.FromDuration(time.Since(f.began)) }
	for i := range f.d.Replicas {
		f.tell(flow.ServerStarted, i)
		f.tell(flow.ServerReady, i)
	}
	pod := drive.New(drive.Options[deployment.Message, *machine.Effects[deployment.Effect]]{Machine: f.m, Effects: new(machine.Effects[deployment.Effect]), Now: now,
		Carry: func(_ machine.Time, fx *machine.Effects[deployment.Effect], i int) {
			e := fx.List[i]
			status := f.m.Status()
			f.do(func() { f.happens(e, status) })
		}})
	f.mu.Lock()
	f.pod = pod
	f.mu.Unlock()
	if f.d.Autoscaling == nil {
		return
	}
	c := s.o.Scenario.Scaler(&f.d)
	f.scaler = autoscaler.New(c, f.m.Status())
	if slices.ContainsFunc(c.Names(), autoscaler.OfServers) {
		f.pods = s.Names
	}
	f.scales = drive.New(drive.Options[autoscaler.Message, *machine.Effects[autoscaler.Effect]]{Machine: f.scaler, Effects: new(machine.Effects[autoscaler.Effect]), Now: now,
		Carry: func(_ machine.Time, fx *machine.Effects[autoscaler.Effect], i int) {
			switch e := fx.List[i]; e.Kind {
			case autoscaler.Scrape:
				f.done.Go(f.scrape)
			case autoscaler.Scale:
				f.do(func() { f.scale(e) })
			}
		}})
}

// going says whether servers come and go now.
func (f *fleet) going() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pod != nil
}

// end lets nothing come or go any more.
func (f *fleet) end() {
	if f.pod == nil {
		return
	}
	if f.scales != nil {
		f.scales.Stop()
	}
	f.pod.Stop()
	f.cancel()
	f.mu.Lock()
	f.closed = true
	f.more.Broadcast()
	f.mu.Unlock()
	f.done.Wait()
	f.mu.Lock()
	f.pod = nil
	f.mu.Unlock()
}

// do has something done after all that came before.
func (f *fleet) do(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.work = append(f.work, what)
	f.more.Signal()
}

func (f *fleet) carryOut() {
	for {
		f.mu.Lock()
		for len(f.work) == 0 && !f.closed {
			f.more.Wait()
		}
		if f.closed {
			f.mu.Unlock()
			return
		}
		what := f.work[0]
		f.work = f.work[1:]
		f.mu.Unlock()
		what()
	}
}

func (f *fleet) tell(step flow.Step, pod int, more ...flow.Detail) {
	if s := f.of; s.o.Recorder != nil {
		i := f.d.First + pod
		s.o.Recorder.Record(flow.Event{Time: s.Now(), Hop: flow.Server, Step: step, Endpoint: s.Endpoints[i], Details: deployment.Details(f.d.Name, s.Names[i], more...)})
	}
}

// happens carries out what happens to a server.
func (f *fleet) happens(e deployment.Effect, status deployment.Status) {
	s, i := f.of, f.d.First+e.Pod
	var err error
	switch e.Kind {
	case deployment.Started:
		f.tell(flow.ServerStarted, e.Pod)
	case deployment.Joined:
		if err = s.join(i); err == nil {
			err = s.follow(i, false)
		}
		f.tell(flow.ServerReady, e.Pod)
	case deployment.Left:
		if e.Was {
			err = s.follow(i, true)
			f.tell(flow.ServerLeaving, e.Pod)
		}
	case deployment.Stopped:
		f.stop(e.Pod)
	case deployment.Killed:
		cut := 0
		if x, ok := f.leaving[e.Pod]; ok {
			x.kill()
			<-x.gone
			cut = *x.cut
			delete(f.leaving, e.Pod)
		}
		f.tell(flow.ServerGone, e.Pod, flow.D("reason", "the grace period is over"), flow.D("cut", cut))
	case deployment.Ended:
		delete(f.leaving, e.Pod)
		f.tell(flow.ServerGone, e.Pod)
	}
	if err != nil {
		s.o.Log.Error("a server did not come or go as it should", "server", s.Names[i], "error", err)
	}
	if f.scales != nil {
		f.scales.Input(autoscaler.Status(status))
	}
}

// join has the server with this index begin anew.
func (s *Pool) join(i int) error {
	if err := s.Fleet.Servers()[i].Join(); err != nil {
		return err
	}
	if i < len(s.Sidecars) {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		return s.restartSidecar(now, i)
	}
	return nil
}

// stop has a server finish what it has.
func (f *fleet) stop(pod int) {
	s, i := f.of, f.d.First+pod
	ctx, kill := context.WithCancel(f.ctx)
	x := leaving{kill, make(chan struct{}), new(int)}
	f.leaving[pod] = x
	var car *sidecar.Sidecar // which may have a decode leg still to send
	if i < len(s.Sidecars) {
		car = s.Sidecars[i]
	}
	f.done.Go(func() {
		defer kill()
		for car != nil && car.InFlight() > 0 && ctx.Err() == nil {
			pause.For(ctx, 10*time.Millisecond)
		}
		*x.cut = s.Fleet.Servers()[i].Leave(ctx)
		close(x.gone)
		if ctx.Err() == nil {
			f.pod.Input(deployment.Idle{Pod: pod})
		}
	})
}

// scale gives the servers another number.
func (f *fleet) scale(e autoscaler.Effect) {
	if s := f.of; s.o.Recorder != nil {
		s.o.Recorder.Record(flow.Event{Time: s.Now(), Hop: flow.Server, Step: flow.Scaled, Details: e.Details(f.d.Name)})
	}
	f.pod.Input(deployment.Scale{Replicas: e.To})
}

// scrapeTimeout is Prometheus' scrape_timeout.
const scrapeTimeout = 10 * time.Second

// scrape reads the pages that Prometheus would.
func (f *fleet) scrape() {
	s := f.of
	ctx, cancel := context.WithTimeout(f.ctx, scrapeTimeout)
	defer cancel()
	read := func(target, address string) {
		x := autoscaler.Scraped{Target: target, Failed: true}
		if list, err := f.page(ctx, "http://"+address+"/metrics", target); err == nil {
			x.Samples, x.Failed = list, false
		} else if ctx.Err() == nil {
			s.o.Log.Debug("a page of metrics was not read", "target", target, "error", err)
		}
		f.scales.Input(x)
	}
	for i, k := range s.Pickers {
		read(s.pool.PickerName(i), k.MetricsAddr())
	}
	for i, name := range f.pods {
		if s.isAbsent(i) {
			f.scales.Input(autoscaler.Scraped{Target: name, Failed: true})
			continue
		}
		read(name, s.Fleet.Servers()[i].Address())
	}
}

// page are the samples of a page that some query reads.
func (f *fleet) page(ctx context.Context, url, target string) ([]promql.Sample, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	r, err := scrapes.Do(q)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, r.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(r.Body, metrics.MaxPageBytes))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	var out []promql.Sample
	for _, name := range slices.Sorted(maps.Keys(families)) {
		out = append(out, f.samples(families[name], metrics.Label{Name: "pod", Value: target})...)
	}
	return out, nil
}

// scrapes asks for pages.
var scrapes = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute}}

// samples are those of one family.
func (f *fleet) samples(x *dto.MetricFamily, more metrics.Label) (out []promql.Sample) {
	add := func(name string, m *dto.Metric, v float64, also ...metrics.Label) {
		if !autoscaler.Known(name) || !f.scaler.Wants(name) {
			return
		}
		labels := append(also, more)
		for _, l := range m.Label {
			labels = append(labels, metrics.Label{Name: l.GetName(), Value: l.GetValue()})
		}
		out = append(out, promql.Sample{Name: name, Labels: labels, Value: v})
	}
	name := x.GetName()
	for _, m := range x.Metric {
		switch {
		case m.Gauge != nil:
			add(name, m, m.Gauge.GetValue())
		case m.Counter != nil:
			add(name, m, m.Counter.GetValue())
		case m.Untyped != nil:
			add(name, m, m.Untyped.GetValue())
		case m.Histogram != nil:
			for _, b := range m.Histogram.Bucket {
				le := strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)
				if math.IsInf(b.GetUpperBound(), 1) {
					le = "+Inf"
				}
				add(name+"_bucket", m, float64(b.GetCumulativeCount()), metrics.Label{Name: "le", Value: le})
			}
			add(name+"_sum", m, m.Histogram.GetSampleSum())
			add(name+"_count", m, float64(m.Histogram.GetSampleCount()))
		}
	}
	return out
}
