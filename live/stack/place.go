package stack

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/scenario"
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
		if p := &s.o.Scenario.Ports; p.Servers > 0 || p.Sidecars > 0 {
			s.places = &places{}
			for i := range s.pool.Servers() {
				s.places.pods = append(s.places.pods,
					place{front: fixed(p.Sidecars, s.cars+i, anyPort), server: fixed(p.Servers, s.first+i, anyPort),
						side: anyPort})
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
		&epp.StandaloneOptions{Config: s.pool.EPP.Config.Text, ConfigName: s.pool.EPP.Config.File,
			AllowExperimental: true, Registry: s.o.Plugins, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return false // it is told when the picker starts
	}
	return slices.ContainsFunc(built.Scrapes(), func(x picker.Scrape) bool { return x.Source.Scrape().Port != "" })
}

func findPlaces(p *scenario.Pool) *places {
	n := p.Servers()
	block, taken := serve.OwnBlock(scenario.PodPort)
	if taken == nil {
		x := &places{block: block}
		for k := range n {
			on := func(port int) string { return scenario.JoinPort(block.Address(k+1).String(), port) }
			pod := place{front: on(scenario.PodPort), server: on(p.ServerPort(k)), side: on(p.SideChannel())}
			if also := p.AlsoPort(k); also != 0 {
				pod.also = on(also)
			}
			x.pods = append(x.pods, pod)
		}
		return x
	}
	x := &places{notice: fmt.Sprintf("the pods share 127.0.0.1, on ports of their own instead of %d, %d and %d: %v",
		scenario.PodPort, scenario.BehindPort, p.SideChannel(), taken)}
	for range n {
		x.pods = append(x.pods, place{front: anyPort, server: anyPort, side: anyPort})
	}
	return x
}

func (x *places) free() { x.block.Free() }
