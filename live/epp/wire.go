package epp

import (
	"time"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/extproc"
)

// input plays one message of Envoy into the machine.
func (c *served) input(in *extproc.In) {
	if in.Configured {
		c.modes = in.Modes
	}
	if !in.Known {
		return
	}
	switch in.Kind {
	case stream.Body:
		if in.Described { // the real EPP reads the subset hint from there, and only there
			c.machine.Subset(in.Subset, in.Hinted)
		}
	case stream.ResponseHeaders:
		c.machine.Served(in.Served)
	}
	// Field by field: a message is large, and a literal would be copied.
	c.in = stream.Message{}
	c.in.Kind, c.in.Modes, c.in.Head, c.in.Body, c.in.End = in.Kind, c.modes, in.Head, in.Body, in.End
	if in.Kind == stream.ResponseHeaders || in.Kind == stream.ResponseBody {
		c.response()
		return
	}
	c.drive.Input(&c.in)
}

// response plays a part of the response and takes its metrics.
func (c *served) response() {
	c.drive.With(func(now machine.Time, fx *machine.Effects[stream.Effect]) {
		started := time.Now()
		c.machine.Input(now, &c.in, fx)
		if r := c.machine.Request(); r != nil && r.Response != nil && r.Decision != nil && len(c.in.Body) > 0 {
			if c.lastAt > 0 {
				c.k.o.Metrics.piece(r, (now - c.lastAt).Duration())
			}
			c.lastAt = now
		}
		c.spent += time.Since(started)
	})
}
