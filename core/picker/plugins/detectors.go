package plugins

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
	"github.com/windtunnel/windtunnel/core/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/picker/plugins/dataproducer"
)

// utilizationDetector is utilization-detector, as detector and as filter. The
// filter returns all when none is left.
type utilizationDetector struct {
	named
	flowcontrol.Utilization
}

func newUtilizationDetector(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	def := flowcontrol.DefaultUtilization()
	ps := struct {
		Queue    int             `json:"queueDepthThreshold"`
		KV       float64         `json:"kvCacheUtilThreshold"`
		Stale    config.Duration `json:"metricsStalenessThreshold"`
		Headroom float64         `json:"headroom"`
	}{def.QueueDepthThreshold, def.KVCacheUtilThreshold, config.Duration(def.MetricsStalenessThreshold), def.Headroom}
	if err := p.Decode(&ps); err != nil {
		return nil, err
	}
	u := &utilizationDetector{named{}, flowcontrol.Utilization{
		QueueDepthThreshold: ps.Queue, KVCacheUtilThreshold: ps.KV, MetricsStalenessThreshold: ps.Stale.Time(),
		Headroom: ps.Headroom}}
	if err := u.Validate(); err != nil {
		return nil, p.Errorf("%v", err)
	}
	return u, nil
}

// Saturation is the candidates' mean score.
func (u *utilizationDetector) Saturation(now machine.Time, v *picker.View, in []int32) float64 {
	return u.Utilization.Saturation(loads(v, in, nil), now)
}

// Filter keeps endpoints below the thresholds.
func (u *utilizationDetector) Filter(c *picker.Cycle, in []int32) []int32 {
	return keepOr(in, func(i int32) bool { return u.Keep(load(c.State(i), nil), c.Now) }, true)
}

// concurrencyDetector is concurrency-detector, as detector and as filter.
type concurrencyDetector struct {
	named
	flowcontrol.Concurrency
	load *dataproducer.Inflight
}

func newConcurrencyDetector(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	def := flowcontrol.DefaultConcurrency()
	ps := struct {
		Mode     string  `json:"concurrencyMode"`
		Requests int64   `json:"maxConcurrency"`
		Tokens   int64   `json:"maxTokenConcurrency"`
		Headroom float64 `json:"headroom"`
		Producer string  `json:"inFlightLoadProducerName"`
	}{Mode: def.Mode, Requests: def.MaxConcurrency, Tokens: def.MaxTokenConcurrency}
	if err := p.Decode(&ps); err != nil {
		return nil, err
	}
	d := &concurrencyDetector{Concurrency: flowcontrol.Concurrency{
		Mode: ps.Mode, MaxConcurrency: ps.Requests, MaxTokenConcurrency: ps.Tokens, Headroom: ps.Headroom}}
	if err := d.Validate(); err != nil {
		return nil, p.Errorf("%v", err)
	}
	dataproducer.FindInflight(b, ps.Producer, name, &d.load)
	return d, nil
}

// Saturation is what is in flight over what may be.
func (d *concurrencyDetector) Saturation(now machine.Time, v *picker.View, in []int32) float64 {
	return d.Concurrency.Saturation(loads(v, in, d.load))
}

// Filter keeps endpoints with room.
func (d *concurrencyDetector) Filter(c *picker.Cycle, in []int32) []int32 {
	return keep(in, func(i int32) bool { return d.Keep(load(c.State(i), d.load)) })
}

// Loads are a pool's endpoints as the flow-control machine sees them, with
// what the saturation detector counts in flight: flowcontrol.Pool.
func Loads(p *picker.Picker, v *picker.View) []flowcontrol.Load {
	out := make([]flowcontrol.Load, 0, len(v.States))
	for i := range v.States {
		out = append(out, Load(p, &v.States[i]))
	}
	return out
}

// Load is one endpoint's: flowcontrol.LoadChanged, whenever its metrics or what
// is in flight there have changed.
func Load(p *picker.Picker, s *picker.State) flowcontrol.Load {
	var f *dataproducer.Inflight
	if d, ok := p.Detector().(*concurrencyDetector); ok {
		f = d.load
	}
	return load(s, f)
}

// loads are the candidates as flow control sees them.
func loads(v *picker.View, in []int32, f *dataproducer.Inflight) []flowcontrol.Load {
	out := make([]flowcontrol.Load, 0, len(in))
	for _, i := range in {
		out = append(out, load(&v.States[i], f))
	}
	return out
}

func load(s *picker.State, f *dataproducer.Inflight) flowcontrol.Load {
	l := flowcontrol.Load{Waiting: int(s.Waiting), KVUsage: s.KVUsage, Scraped: s.Scraped, UpdatedAt: s.UpdatedAt}
	if f != nil {
		l.Requests, l.Tokens = f.Load(s.Slot())
	}
	return l
}
