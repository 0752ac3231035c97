package upstream

import "github.com/windtunnel/windtunnel/core/machine"

// health is what is known of an endpoint by its probes.
type health struct {
	failing bool
	row     int // probes in a row that say otherwise
	probe   int // the last one's number
	probing bool
	timer   machine.Handle // of the probe's end, or of the next one
}

// look is the time of a host's next probe, or the end of one that was not answered.
func (x *Cluster) look(h *host) {
	if h.probing {
		x.probed(h, false, false)
		return
	}
	h.probe++
	h.probing = true
	x.await(&h.timer, x.now.Add(machine.FromDuration(x.c.Health.Timeout)), timer{host: h})
	x.say(Effect{Kind: Probe, Endpoint: h.endpoint, Attempt: h.probe})
}

// probed is what came of a probe. An answer that is wrong counts at once, and so does the
// first probe of an endpoint.
func (x *Cluster) probed(h *host, well, answered bool) {
	h.probing = false
	x.await(&h.timer, x.now.Add(machine.FromDuration(x.c.Health.Interval)), timer{host: h})
	if well != h.failing { // nothing new
		h.row = 0
		return
	}
	h.row++
	needs := int(x.c.Health.UnhealthyThreshold)
	if well {
		needs = int(x.c.Health.HealthyThreshold)
	}
	if h.row >= needs || h.probe == 1 || !well && answered {
		h.failing, h.row = !well, 0
		x.tell()
	}
}
