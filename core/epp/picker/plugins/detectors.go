package plugins

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
	"github.com/windtunnel/windtunnel/core/machine"
)

// utilizationDetector is utilization-detector, as detector and as filter. The
// filter returns all when none is left.
type utilizationDetector struct {
	named
	flowcontrol.Utilization
}

var newUtilizationDetector = picker.Of(utilizationDetector{Utilization: flowcontrol.DefaultUtilization()})

// Configure implements picker.Configurer.
func (u *utilizationDetector) Configure(_ *picker.Builder, _ string, p picker.Params) error {
	return p.Locate(u.Validate())
}

// Saturation returns the candidates' mean score.
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
	Producer string `json:"inFlightLoadProducerName"`

	load *dataproducer.Inflight
}

var newConcurrencyDetector = picker.Of(concurrencyDetector{Concurrency: flowcontrol.DefaultConcurrency()})

// Configure implements picker.Configurer.
func (d *concurrencyDetector) Configure(b *picker.Builder, name string, p picker.Params) error {
	dataproducer.FindInflight(b, d.Producer, name, &d.load)
	return p.Locate(d.Validate())
}

// Saturation returns the load in flight divided by the limit.
func (d *concurrencyDetector) Saturation(now machine.Time, v *picker.View, in []int32) float64 {
	return d.Concurrency.Saturation(loads(v, in, d.load))
}

// Filter keeps endpoints with room.
func (d *concurrencyDetector) Filter(c *picker.Cycle, in []int32) []int32 {
	return keep(in, func(i int32) bool { return d.Keep(load(c.State(i), d.load)) })
}

// Loads returns a pool's endpoints as the flow-control machine sees them, with
// what the saturation detector counts in flight: flowcontrol.Pool.
func Loads(p *picker.Picker, v *picker.View) []flowcontrol.Load {
	out := make([]flowcontrol.Load, 0, len(v.States))
	for i := range v.States {
		out = append(out, Load(p, &v.States[i]))
	}
	return out
}

// Load returns one endpoint's: flowcontrol.LoadChanged, whenever its metrics or what
// is in flight there have changed.
func Load(p *picker.Picker, s *picker.State) flowcontrol.Load {
	var f *dataproducer.Inflight
	if d, ok := p.Detector().(*concurrencyDetector); ok {
		f = d.load
	}
	return load(s, f)
}

// loads returns the candidates as flow control sees them.
func loads(v *picker.View, in []int32, f *dataproducer.Inflight) []flowcontrol.Load {
	out := make([]flowcontrol.Load, 0, len(in))
	for _, i := range in {
		out = append(out, load(&v.States[i], f))
	}
	return out
}

func load(s *picker.State, f *dataproducer.Inflight) flowcontrol.Load {
	l := flowcontrol.Load{Waiting: int(s.Waiting), KVUsage: machine.Float(s.KVUsage), Scraped: s.Scraped,
		UpdatedAt: s.UpdatedAt}
	if f != nil {
		l.Requests, l.Tokens = f.Load(s.Slot())
	}
	return l
}
