package kvtransfer

import (
	"sync"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/live/drive"
	"github.com/windtunnel/windtunnel/live/modelserver/enginedrive"
)

// Network drives the simulated network between a fleet's servers, in wall time. It sends its messages to the servers
// directly. The servers' messages wait here in a queue: a server must not wait for the network while the network waits
// for that server.
type Network struct {
	drive   *drive.Driver[enginecore.NetworkMessage, *enginecore.NetworkEffects]
	net     *enginecore.Network // guarded by the driver's lock, except for its Profile
	engines []*enginedrive.Engine

	mu      sync.Mutex
	mail    []enginecore.NetworkMessage
	running bool // a goroutine passes the queue on
	done    sync.WaitGroup
}

// NewNetwork connects engines, whose names it adds to c.
func NewNetwork(c enginecore.NetworkConfig, engines []*enginedrive.Engine, clock func() machine.Time) (*Network,
	error) {
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

// Profile returns the connector's profile.
func (n *Network) Profile() *link.Profile { return n.net.Profile() }

// InFlight returns the number of transfers in progress.
func (n *Network) InFlight() (transfers int) {
	n.drive.With(func(machine.Time, *enginecore.NetworkEffects) { transfers = n.net.InFlight() })
	return transfers
}

func (n *Network) carry(_ machine.Time, fx *enginecore.NetworkEffects, i int) {
	d := &fx.List[i]
	n.engines[d.To].Send(d.Message)
}

// Send queues a message for the network. Messages keep the order of the calls.
func (n *Network) Send(m enginecore.NetworkMessage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mail = append(n.mail, m)
	if !n.running {
		n.running = true
		n.done.Go(n.hand)
	}
}

// hand passes all queued messages to the network.
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

// Stop ends the network. No server may send messages any more.
func (n *Network) Stop() {
	n.done.Wait()
	n.drive.Stop()
}
