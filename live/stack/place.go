package stack

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/live/epp"
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
	lock   net.Listener
	notice string
}

// blocks of loopback addresses: 127.A.0.0/16. A run holds port 8000 of
// 127.A.0.1 for as long as it uses the block, so that two runs at once do not
// meet.
const (
	firstBlock = 16
	lastBlock  = 250
)

// findPlaces finds the pool's places, once.
func (s *Pool) findPlaces() {
	if s.places == nil {
		if p := &s.o.Scenario.Ports; p.Servers > 0 || p.Sidecars > 0 {
			s.places = &places{}
			for i := range s.pool.Servers() {
				s.places.pods = append(s.places.pods, place{front: fixed(p.Sidecars, s.cars+i, anyPort), server: fixed(p.Servers, s.first+i, anyPort), side: anyPort})
			}
			return
		}
		s.places = findPlaces(s.pool)
	}
}

// scrapesPort says whether the picker asks pods for pages on a port that its
// configuration names, which then has to be the one that it is in a cluster.
func (s *Pool) scrapesPort() bool {
	built, err := epp.BuildPicker(&epp.StandaloneOptions{Config: s.pool.EPP.Config.Text, ConfigName: s.pool.EPP.Config.File, AllowExperimental: true, Registry: s.o.Plugins, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return false // it is told when the picker starts
	}
	return slices.ContainsFunc(built.Scrapes(), func(x picker.Scrape) bool { return x.Source.Scrape().Port != "" })
}

func findPlaces(p *scenario.Pool) *places {
	n := p.Servers()
	var taken error
	for i := range lastBlock - firstBlock {
		block := firstBlock + (os.Getpid()*7+i)%(lastBlock-firstBlock)
		at := func(k int) netip.Addr {
			return netip.AddrFrom4([4]byte{127, byte(block), byte(k / 250), byte(k%250 + 1)})
		}
		lock, err := net.Listen("tcp", netip.AddrPortFrom(at(0), scenario.PodPort).String())
		if err != nil {
			if taken = err; strings.Contains(err.Error(), "assign requested address") {
				break // there is one loopback address only
			}
			continue
		}
		x := &places{lock: lock}
		for k := range n {
			on := func(port int) string { return scenario.JoinPort(at(k+1).String(), port) }
			pod := place{front: on(scenario.PodPort), server: on(p.ServerPort(k)), side: on(scenario.SideChannelPort)}
			if also := p.AlsoPort(k); also != 0 {
				pod.also = on(also)
			}
			x.pods = append(x.pods, pod)
		}
		return x
	}
	x := &places{notice: fmt.Sprintf("the pods share 127.0.0.1, on ports of their own instead of %d, %d and %d: %v", scenario.PodPort, scenario.BehindPort, scenario.SideChannelPort, taken)}
	for range n {
		x.pods = append(x.pods, place{front: anyPort, server: anyPort, side: anyPort})
	}
	return x
}

func (x *places) free() {
	if x.lock != nil {
		_ = x.lock.Close() // nobody ever connects to it
	}
}
