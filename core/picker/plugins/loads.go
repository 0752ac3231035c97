package plugins

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/flowcontrol"
)

// Loads are a pool's endpoints as the flow-control machine sees them, with
// what the saturation detector counts in flight: flowcontrol.Pool.
func Loads(p *picker.Picker, v *picker.View) []flowcontrol.Load {
	out := make([]flowcontrol.Load, 0, len(v.States))
	for i := range v.States {
		out = append(out, Load(p, &v.States[i]))
	}
	return out
}

// Load is one endpoint's: flowcontrol.LoadChanged, whenever its figures or what
// is in flight there have changed.
func Load(p *picker.Picker, s *picker.State) flowcontrol.Load {
	var f *inflight
	if d, ok := p.Detector().(*concurrencyDetector); ok {
		f = d.load
	}
	return load(s, f)
}

func seconds(s float64) machine.Time {
	if !(s > 0 && s < 1e9) {
		return 0
	}
	return machine.Time(s * float64(machine.Second))
}
