package kvevents

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/windtunnel/windtunnel/internal/pause"
)

// peers opens and tracks the connections of one socket. It listens or dials, dials again after a connection ended,
// and closes all connections at the end.
type peers struct {
	kind       zmq4.SocketType
	maxMessage int
	log        *slog.Logger
	sockets    *Sockets
	// serve handles one open connection. The connection is closed when serve returns.
	serve func(ctx context.Context, c *conn)

	wait sync.WaitGroup
}

const (
	maxPeers     = 4096 // accepted connections per socket
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// listen accepts connections until the context ends.
func (p *peers) listen(ctx context.Context, endpoint string) (net.Addr, error) {
	l, err := p.sockets.listen(endpoint)
	if err != nil {
		return nil, err
	}
	places := make(chan struct{}, maxPeers)
	p.wait.Add(2)
	go func() {
		defer p.wait.Done()
		<-ctx.Done()
		l.Close()
	}()
	go func() {
		defer p.wait.Done()
		for {
			nc, err := l.Accept()
			if ctx.Err() != nil {
				if err == nil {
					nc.Close()
				}
				return
			}
			if err != nil { // most likely out of file descriptors
				p.log.Warn("cannot accept a ZMQ peer", "endpoint", endpoint, "error", err)
				pause.For(ctx, lastBackoff/4)
				continue
			}
			select {
			case places <- struct{}{}:
			default:
				p.log.Warn("too many ZMQ peers", "endpoint", endpoint, "limit", maxPeers)
				nc.Close()
				continue
			}
			p.wait.Go(func() {
				defer func() { <-places }()
				p.open(ctx, nc, true)
			})
		}
	}()
	return l.Addr(), nil
}

// dial keeps one connection to an endpoint until the context ends. If local is not nil, the connection starts from
// this address.
func (p *peers) dial(ctx context.Context, endpoint string, local net.Addr) error {
	address, err := endpointAddress(endpoint)
	if err != nil {
		return err
	}
	p.wait.Add(1)
	go func() {
		defer p.wait.Done()
		backoff := firstBackoff
		for ctx.Err() == nil {
			d := net.Dialer{Timeout: handshakeTimeout, LocalAddr: local}
			nc, err := d.DialContext(ctx, "tcp", address)
			if err == nil && p.open(ctx, nc, false) {
				backoff = firstBackoff
			}
			pause.For(ctx, backoff)
			backoff = min(2*backoff, lastBackoff)
		}
	}()
	return nil
}

// loopbackOf returns the local address from which to dial an endpoint when both are loopback addresses. Pods that
// share a host then have different source addresses, as pods in Kubernetes do. For all other addresses it returns
// nil.
func loopbackOf(own net.Addr, endpoint string) net.Addr {
	tcp, ok := own.(*net.TCPAddr)
	if !ok || !tcp.IP.IsLoopback() {
		return nil
	}
	host, _, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() ||
		(ip.To4() == nil) != (tcp.IP.To4() == nil) {
		return nil
	}
	return &net.TCPAddr{IP: tcp.IP}
}

// open does the handshake and serves the connection. It reports whether the handshake succeeded.
func (p *peers) open(ctx context.Context, nc net.Conn, server bool) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	c, err := handshake(nc, p.kind, server, p.maxMessage)
	if err != nil {
		if ctx.Err() == nil {
			p.log.Debug("ZMQ peer refused", "error", err)
		}
		return false
	}
	defer c.Close()
	p.serve(ctx, c)
	return true
}

// ended reports whether an error only means that the connection was closed.
func ended(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, zmq4.ErrClosedConn)
}
