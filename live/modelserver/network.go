package modelserver

import (
	"sync"

	"github.com/windtunnel/windtunnel/core/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/live/drive"
)

// TransferOptions say how KV caches travel between servers.
type TransferOptions struct {
	// Profile is the connector; the zero value is link.NIXLv2.
	Profile link.Profile
	// NIC joins each server to the network; the zero value is infiniband-200.
	NIC link.Wire
	// Store joins the external cache of LMCache; the zero value is a wire like
	// NIC.
	Store link.Wire
}

// network drives what joins a fleet's servers, in wall time. What it says it
// gives to the servers itself; what they say waits here, as they must not wait
// for it while it waits for them.
type network struct {
	drive   *drive.Driver[enginecore.NetworkMessage, *enginecore.NetworkEffects]
	net     *enginecore.Network // for who has it in hand; its Profile for everybody
	servers []*Server

	mu      sync.Mutex
	mail    []enginecore.NetworkMessage
	running bool // somebody hands mail in
	done    sync.WaitGroup
}

func newNetwork(o TransferOptions, servers []*Server, clock func() machine.Time) (*network, error) {
	c := enginecore.NetworkConfig{Profile: o.Profile, NIC: o.NIC, Store: o.Store}
	for _, s := range servers {
		c.Engines = append(c.Engines, s.reader.EngineID)
	}
	net, err := enginecore.NewNetwork(c)
	if err != nil {
		return nil, err
	}
	n := &network{net: net, servers: servers}
	n.drive = drive.New(drive.Options[enginecore.NetworkMessage, *enginecore.NetworkEffects]{Machine: net, Effects: new(enginecore.NetworkEffects), Now: clock, Carry: n.carry})
	return n, nil
}

func (n *network) carry(_ machine.Time, fx *enginecore.NetworkEffects, i int) {
	d := &fx.List[i]
	n.servers[d.To].loop.send(d.Message)
}

// send gives the network a message, in the order of the calls.
func (n *network) send(m enginecore.NetworkMessage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mail = append(n.mail, m)
	if !n.running {
		n.running = true
		n.done.Go(n.hand)
	}
}

// hand hands in all mail there is.
func (n *network) hand() {
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

// stop ends it, when no server is left to say anything.
func (n *network) stop() {
	n.done.Wait()
	n.drive.Stop()
}
