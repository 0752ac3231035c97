package upstream

import "github.com/windtunnel/windtunnel/core/machine"

// health is the result of an endpoint's health checks so far.
type health struct {
	failing bool
	row     int // successive probes with the other result
	probe   int // the number of the last probe
	probing bool
	timer   machine.Handle // for the probe's end, or for the next probe
}

// look starts a host's next probe, or ends one that had no answer in time.
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

// probed takes the result of a probe. A wrong answer counts at once, and so does the first probe of an endpoint.
func (x *Cluster) probed(h *host, well, answered bool) {
	h.probing = false
	x.await(&h.timer, x.now.Add(machine.FromDuration(x.c.Health.Interval)), timer{host: h})
	if well != h.failing { // no change
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
		x.reportOut()
	}
}
