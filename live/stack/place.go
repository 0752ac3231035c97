package stack

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/serve"
)

// place is where a pod's parts listen.
type place struct {
	// Front is what the picker, Envoy and prefill legs reach: the sidecar, or
	// the model server where there is none.
	front string
	// Server is the model server itself, also or empty where it answers, too; Side
	// is its KV side channel.
	server, also, side string
}

// places gives every pod of a pool whose ports matter a loopback address of its own,
// so that ports mean what they mean in a cluster. Where the machine has one
// loopback address only, or somebody else has taken the ports on all of them,
// pods share 127.0.0.1 on ports of their own, and Notice says so.
type places struct {
	pods   []place
	block  *serve.Block
	notice string
}

// findPlaces finds the pool's places, once.
func (s *Pool) findPlaces() {
	if s.places == nil {
		if slices.ContainsFunc(s.pool.Servers, func(x plan.Server) bool { return x.ListenPort+x.SidecarPort > 0 }) {
			s.places = &places{}
			for _, x := range s.pool.Servers {
				s.places.pods = append(s.places.pods,
					place{front: fixed(x.SidecarPort, anyPort), server: fixed(x.ListenPort, anyPort), side: anyPort})
			}
			return
		}
		s.places = findPlaces(s.pool)
	}
}

// scrapesPort says whether the picker asks pods for pages on a port that its
// configuration names, which then has to be the one that it is in a cluster.
func (s *Pool) scrapesPort() bool {
	built, err := epp.BuildPicker(
		&epp.StandaloneOptions{Config: s.pool.Picker.Config, ConfigName: s.pool.Picker.File,
			AllowExperimental: true, Registry: s.o.Plugins, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return false // it is told when the picker starts
	}
	return slices.ContainsFunc(built.Scrapes(), func(x picker.Scrape) bool { return x.Source.Scrape().Port != "" })
}

func findPlaces(p *plan.Pool) *places {
	block, taken := serve.OwnBlock(plan.PodPort)
	if taken == nil {
		x := &places{block: block}
		for k, s := range p.Servers {
			on := func(port int) string { return plan.JoinPort(block.Address(k+1).String(), port) }
			pod := place{front: on(plan.PodPort), server: on(s.Port), side: on(p.SideChannel)}
			if s.AlsoPort != 0 {
				pod.also = on(s.AlsoPort)
			}
			x.pods = append(x.pods, pod)
		}
		return x
	}
	x := &places{notice: fmt.Sprintf("the pods share 127.0.0.1, on ports of their own instead of %d, %d and %d: %v",
		plan.PodPort, plan.BehindPort, p.SideChannel, taken)}
	for range p.Servers {
		x.pods = append(x.pods, place{front: anyPort, server: anyPort, side: anyPort})
	}
	return x
}

func (x *places) free() { x.block.Free() }
