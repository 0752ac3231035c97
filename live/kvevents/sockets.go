package kvevents

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"

	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Sockets are listening sockets for subscribers that follow one another at the same endpoint, as those of a
// configuration and of the next one do. A new connection goes to the newest subscriber. A socket closes with the last
// one. The zero value has none. It is safe for concurrent use.
type Sockets struct {
	// Local has every socket listen at a free port of 127.0.0.1, whatever its endpoint.
	Local bool

	mu   sync.Mutex
	open map[string]*socket
}

type socket struct {
	net.Listener
	of       *Sockets
	endpoint string
	places   []*place // the newest is the last
}

// place is a socket as one subscriber uses it.
type place struct {
	*socket
	conns  chan net.Conn
	closed chan struct{}
}

// listen returns the socket of an endpoint. A nil Sockets shares none.
func (s *Sockets) listen(endpoint string) (net.Listener, error) {
	address, err := endpointAddress(endpoint)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return serve.Listen("KV events", address)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.open[endpoint]
	if x == nil {
		if s.Local {
			address = "127.0.0.1:0"
		}
		l, err := serve.Listen("KV events", address)
		if err != nil {
			return nil, err
		}
		if s.open == nil {
			s.open = map[string]*socket{}
		}
		x = &socket{Listener: l, of: s, endpoint: endpoint}
		s.open[endpoint] = x
		go x.accept()
	}
	p := &place{socket: x, conns: make(chan net.Conn), closed: make(chan struct{})}
	x.places = append(x.places, p)
	return p, nil
}

// accept hands connections out until the socket closes.
func (x *socket) accept() {
	for {
		c, err := x.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		x.of.mu.Lock()
		var newest *place
		if n := len(x.places); n > 0 {
			newest = x.places[n-1]
		}
		x.of.mu.Unlock()
		switch {
		case err != nil: // most likely out of file descriptors
			pause.For(context.Background(), lastBackoff/4)
		case newest == nil:
			c.Close()
		default:
			select {
			case newest.conns <- c:
			case <-newest.closed:
				c.Close()
			}
		}
	}
}

// Accept implements net.Listener.
func (p *place) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close gives the socket up for this subscriber. It is called once.
func (p *place) Close() error {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	close(p.closed)
	p.places = slices.DeleteFunc(p.places, func(x *place) bool { return x == p })
	if len(p.places) > 0 {
		return nil
	}
	delete(p.of.open, p.endpoint)
	return p.Listener.Close()
}
