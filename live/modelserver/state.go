package modelserver

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/live/serve"
)

// state answers core/modelserver's questions about the server while core/modelserver reads requests.
type state struct{ s *Server }

func (x state) Draws() *lifecycle.Draws { return x.s.draws.Load() }

func (x state) Fault(request string) lifecycle.Fault {
	if x.s.opts.Faults.Of != nil {
		if f := x.s.opts.Faults.Of(request); f != (lifecycle.Fault{}) {
			return f
		}
	}
	return x.s.injected(request)
}

func (x state) Adapter(name string) (engine.AdapterID, bool) {
	a, ok := x.s.adapters.find(name)
	return a.id, ok
}

func (x state) Own(a netip.Addr) bool { return slices.Contains(serve.OwnAddresses(), a) }

func (x state) MeetsAt(host string, port int) bool { return x.s.kv.MeetsAt(host, port) }

func (x state) Fetched(handle string) bool { return x.s.store.Fetched(handle) }

func (x state) Shown(all []modelserver.Media) { x.s.seen.show(all) }

func (x state) ImagePercent() int { return int(x.s.imagePercent.Load()) }

func (x state) EncodingsAt() (host string, port int) {
	host, text, err := net.SplitHostPort(x.s.endpoint)
	if x.s.opts.SideChannel != "" && err == nil {
		if _, p, err := net.SplitHostPort(x.s.opts.SideChannel); err == nil {
			text = p
		}
	}
	port, _ = strconv.Atoi(text) // the server's own address
	return host, port
}

func (x state) Stored() modelserver.Stored { return x.s.store }
