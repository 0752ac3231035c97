package plugins

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/flowcontrol"
)

// Loads are a pool's endpoints as the flow-control machine sees them, with
// what the saturation detector counts in flight. They belong into a
// flowcontrol.Pool message whenever figures or in-flight counts change.
func Loads(p *picker.Picker, v *picker.View) []flowcontrol.Load {
	var f *inflight
	if d, ok := p.Detector().(*concurrencyDetector); ok {
		f = d.load
	}
	out := make([]flowcontrol.Load, 0, len(v.States))
	for i := range v.States {
		out = append(out, load(&v.States[i], f))
	}
	return out
}

func seconds(s float64) machine.Time {
	if !(s > 0 && s < 1e9) {
		return 0
	}
	return machine.Time(s * float64(machine.Second))
}
