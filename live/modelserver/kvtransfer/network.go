package kvtransfer

import (
	"sync"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/live/drive"
	"github.com/windtunnel/windtunnel/live/modelserver/enginedrive"
)

// NetworkOptions say how KV caches travel between servers.
type NetworkOptions struct {
	// Profile is the connector; the zero value is NIXL v2's.
	Profile link.Profile
	// NIC joins each server to the network; the zero value is infiniband-200.
	NIC link.Wire
	// Store joins the external cache of LMCache; the zero value is a wire like
	// NIC.
	Store link.Wire
	// Deviation is the standard deviation of a transfer's time, drawn with Seed; 0 is none.
	Deviation machine.Time
	Seed      uint64
}

// Network drives what joins a fleet's servers, in wall time. What it says it
// gives to the servers itself; what they say waits here, as they must not wait
// for it while it waits for them.
type Network struct {
	drive   *drive.Driver[enginecore.NetworkMessage, *enginecore.NetworkEffects]
	net     *enginecore.Network // for who has it in hand; its Profile for everybody
	engines []*enginedrive.Engine

	mu      sync.Mutex
	mail    []enginecore.NetworkMessage
	running bool // somebody hands mail in
	done    sync.WaitGroup
}

// NewNetwork joins engines.
func NewNetwork(o NetworkOptions, engines []*enginedrive.Engine, clock func() machine.Time) (*Network, error) {
	c := enginecore.NetworkConfig{Profile: o.Profile, NIC: o.NIC, Store: o.Store, Deviation: o.Deviation,
		Seed: o.Seed}
	for _, e := range engines {
		c.Engines = append(c.Engines, e.Core.Config().EngineID)
	}
	net, err := enginecore.NewNetwork(c)
	if err != nil {
		return nil, err
	}
	n := &Network{net: net, engines: engines}
	n.drive = drive.New(drive.Options[enginecore.NetworkMessage, *enginecore.NetworkEffects]{Machine: net,
		Effects: new(enginecore.NetworkEffects), Now: clock, Carry: n.carry})
	return n, nil
}

// Profile is the connector.
func (n *Network) Profile() *link.Profile { return n.net.Profile() }

// InFlight is how many transfers are on their way.
func (n *Network) InFlight() (transfers int) {
	n.drive.With(func(machine.Time, *enginecore.NetworkEffects) { transfers = n.net.InFlight() })
	return transfers
}

func (n *Network) carry(_ machine.Time, fx *enginecore.NetworkEffects, i int) {
	d := &fx.List[i]
	n.engines[d.To].Send(d.Message)
}

// Send gives the network a message, in the order of the calls.
func (n *Network) Send(m enginecore.NetworkMessage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mail = append(n.mail, m)
	if !n.running {
		n.running = true
		n.done.Go(n.hand)
	}
}

// hand hands in all mail there is.
func (n *Network) hand() {
	for {
		n.mu.Lock()
		mail := n.mail
		n.mail = nil
		n.running = len(mail) > 0
		n.mu.Unlock()
		if len(mail) == 0 {
			return
		}
		for _, m := range mail {
			n.drive.Input(m)
		}
	}
}

// Stop ends it, when no server is left to say anything.
func (n *Network) Stop() {
	n.done.Wait()
	n.drive.Stop()
}
