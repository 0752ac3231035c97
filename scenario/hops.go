package scenario

import "github.com/windtunnel/windtunnel/core/modelserver/latency/dist"

// The defaults of Hops are measurements of `windtunnel run --hops` on an idle machine. docs/scenario.md describes them.

// Hops are the times from one part to the next in virtual time. They stand for sockets, Envoy and the parts' own
// handling of messages in wall time. Each is a duration or a distribution, from which every message draws; 0 is no
// time. `windtunnel run --hops` measures them.
type Hops struct {
	// From one process to another, one way: client to Envoy, Envoy to sidecar or model server, sidecar to the model
	// server of another pod, and back.
	Network dist.Dist `json:"network" max:"1m" default:"lognormal(350us, 190us)"`
	// Envoy's own work on a request, and on the pieces of its answer, without its calls of the endpoint picker.
	Envoy dist.Dist `json:"envoy" max:"1m" default:"lognormal(335us, 125us)"`
	// From Envoy to the endpoint picker, or back.
	ExtProc dist.Dist `json:"extProc" max:"1m" default:"lognormal(345us, 155us)"`
	// From the sidecar to its own pod's model server, or back.
	Sidecar dist.Dist `json:"sidecar" max:"1m" default:"lognormal(600us, 240us)"`
	// From the endpoint picker's request for a page of metrics until it has read the page. The page's values are those
	// of the middle of this time.
	Scrape dist.Dist `json:"scrape" max:"1m" default:"lognormal(600us, 250us)"`
}
