package web

import (
	"context"

	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
)

// GaugeOf returns the Gauge of an endpoint's state.
func GaugeOf(s *picker.State) Gauge {
	g := Gauge{Name: s.Namespace + "/" + s.Name, Waiting: int(s.Waiting), Running: int(s.Running), KV: s.KVUsage,
		Ready: s.Scraped && (s.Announced == nil || s.Announced.Ready)}
	if s.LoRA != nil {
		g.Adapters = append(g.Adapters, s.LoRA.Running...)
	}
	return g
}

// PlayGauges adds the pods' metrics of a finished run to a book, from the log of inputs. After an error, the book has
// the metrics before it.
func PlayGauges(ctx context.Context, b *Book, each func(func(line []byte) error) error) error {
	p := &inputlog.Player{Registry: plugins.Builtin()}
	p.Scraped = func(now machine.Time, endpoint string, v *picker.View) {
		if i := v.Find(endpoint); i >= 0 {
			b.Gauge(now, v.States[i].HostPort(), GaugeOf(&v.States[i]))
		}
	}
	return each(func(line []byte) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return p.Line(line)
	})
}
