package virtual

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
)

// network connects the model servers of a pool: the links for KV caches, and connections for calls, which take no time.
type network struct {
	slot[enginecore.NetworkMessage, *enginecore.NetworkEffects]

	net     *enginecore.Network
	callers map[enginecore.Inquiry]caller
	inquiry enginecore.Inquiry // the latest one
}

// caller and peer are the two ends of a connection: the calling and the called server.
type (
	caller struct {
		server *server
		call   enginecore.Call
	}
	peer struct {
		server  *server
		inquiry enginecore.Inquiry
	}
)

func newNetwork(of *pool) (*network, error) {
	c := enginecore.NetworkConfig{Profile: of.Link, NIC: of.NIC}
	for _, s := range of.servers {
		c.Engines = append(c.Engines, s.core.Config().EngineID)
	}
	net, err := enginecore.NewNetwork(c)
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", of.Name, err)
	}
	x := &network{net: net, callers: map[enginecore.Inquiry]caller{}}
	x.class = machine.ClassTimer
	x.open(of.w, net, new(enginecore.NetworkEffects), func(i int) {
		d := &x.fx.List[i]
		of.servers[d.To].input(d.Message)
	})
	return x, nil
}

// act carries out an action of a server on others.
func (s *server) act(do enginecore.Action) {
	x := s.pool.net
	switch a := do.(type) {
	case enginecore.NetworkMessage:
		x.input(a)
	case enginecore.Ask:
		s.ask(&a)
	case enginecore.HangUp:
		to := s.calls[a.Call]
		delete(s.calls, a.Call)
		delete(x.callers, to.inquiry)
		to.server.input(enginecore.Left{Inquiry: to.inquiry})
	case enginecore.Answer:
		if who, there := x.callers[a.Inquiry]; there {
			who.server.input(enginecore.Replied{Call: who.call, Reply: a.Reply})
		}
	case enginecore.Event:
		s.announce(&a.Event)
	}
}

// ask sends a question to a server. The first question of a call opens the connection.
func (s *server) ask(a *enginecore.Ask) {
	x := s.pool.net
	to, open := s.calls[a.Call]
	if !open {
		if to.server = s.pool.byHost[a.To.Host]; to.server == nil {
			s.input(enginecore.Broke{Call: a.Call, Err: unreached(a.To.Host, a.To.Port)})
			return
		}
		x.inquiry++
		to.inquiry = x.inquiry
		s.calls[a.Call], x.callers[to.inquiry] = to, caller{s, a.Call}
	}
	to.server.input(enginecore.Asked{Inquiry: to.inquiry, Question: a.Question})
}

// unreached returns the error of dialling an address at which no server is.
func unreached(host string, port int) error {
	if _, err := netip.ParseAddr(host); err != nil {
		return errors.New("no such host")
	}
	return fmt.Errorf("dial tcp %s: connect: connection refused", net.JoinHostPort(host, strconv.Itoa(port)))
}

// control changes an engine. The picker learns of it from its metrics.
func (s *server) control(c engine.Control) { s.input(&enginecore.Control{Control: c}) }
