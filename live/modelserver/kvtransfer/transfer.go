// Package kvtransfer connects model servers in wall time. It has the connections over which they ask each other for KV
// caches, and the simulated network that carries the bytes. core/modelserver/enginecore decides who asks, what, and
// until when.
package kvtransfer

import (
	"bufio"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/live/modelserver/enginedrive"
	"github.com/windtunnel/windtunnel/live/serve"
)

// A server's core sends its messages for other servers over connections. Each connection belongs to one goroutine. The
// core sets all time limits: it hangs up on a peer that is too late.

// Options are the part of a server's options that concerns KV transfers.
type Options struct {
	Name       string
	Engine     *enginedrive.Engine
	Profile    *link.Profile // the connector
	KVRole     string
	EngineID   string
	Keeps      machine.Time // how long the server holds blocks
	ListenHost string       // the host of the server's own listener
	// SideChannel and Meeting are host:port, or empty, as in ServerOptions.
	SideChannel, Meeting string
	Announced            *serve.Group
	Log                  *slog.Logger
}

// End is a server's end of all connections: of its own to other servers, and of theirs to it.
type End struct {
	o             Options
	ctx           context.Context
	network       *Network
	host          string
	side, meeting channel

	// The engine's lock guards both maps.
	calls map[enginecore.Call]*call
	asked map[enginecore.Inquiry]chan<- enginecore.Answer
	last  enginecore.Inquiry
	done  sync.WaitGroup // counts the calls
}

// New creates a server's end. It hangs up all connections when ctx ends.
func New(ctx context.Context, n *Network, o Options) *End {
	e := &End{o: o, ctx: ctx, network: n, calls: map[enginecore.Call]*call{},
		asked: map[enginecore.Inquiry]chan<- enginecore.Answer{}}
	e.side.e, e.meeting.e = e, e
	return e
}

// Open listens for other servers. host is the one that it gives them if the options set no other.
func (e *End) Open(host string) error {
	e.host = host
	if e.o.SideChannel != "" {
		if err := e.side.open(e.o.SideChannel); err != nil {
			return err
		}
	}
	return e.openMeeting()
}

// HungUp waits until no call to another server is open. The caller has ended ctx.
func (e *End) HungUp() { e.done.Wait() }

// Close closes the channels. The engine has been stopped by then.
func (e *End) Close() {
	e.side.close()
	e.meeting.close()
}

// call is a connection to another server.
type call struct {
	hangUp    context.CancelFunc
	questions chan enginecore.Question
}

// Act carries out the core's actions. The caller holds the engine's lock.
func (e *End) Act(do enginecore.Action) {
	switch a := do.(type) {
	case enginecore.NetworkMessage:
		e.network.Send(a)
	case enginecore.Ask:
		e.ask(&a)
	case enginecore.HangUp:
		if c := e.calls[a.Call]; c != nil {
			c.hangUp()
			delete(e.calls, a.Call)
		}
	case enginecore.Answer:
		if to := e.asked[a.Inquiry]; to != nil {
			to <- a // the channel has space for all answers to one question
		}
	case enginecore.Fetched:
		e.o.Log.Info(e.name()+" KV transfer done", "server", e.o.Name, "tokens", a.Tokens, "bytes", a.Bytes, "ms",
			a.Took.Seconds()*1e3)
	case enginecore.Lost:
		from := "the external cache"
		if a.From != nil {
			from = a.From.Address()
		}
		e.o.Log.Warn(e.name()+" KV transfer failed", "server", e.o.Name, "from", from, "error", a.Err)
	case enginecore.Kept:
		e.o.Log.Warn("KV not released: the holder keeps it until its time is up", "server", e.o.Name, "error", a.Err)
	}
}

// name returns the connector's name for log lines.
func (e *End) name() string {
	if p := e.o.Profile; p != nil && p.Name != "" && !strings.HasPrefix(p.Name, "nixl") {
		return p.Name
	}
	return "NIXL"
}

// ask sends a question over a call's connection. The first question opens the connection.
func (e *End) ask(a *enginecore.Ask) {
	c := e.calls[a.Call]
	if c == nil {
		if e.ctx.Err() != nil {
			return
		}
		ctx, hangUp := context.WithCancel(e.ctx)
		c = &call{hangUp, make(chan enginecore.Question, 1)}
		e.calls[a.Call] = c
		id, address := a.Call, a.To.Address()
		e.done.Go(func() {
			defer hangUp()
			if err := e.converse(ctx, id, address, c.questions); ctx.Err() == nil {
				e.o.Engine.Send(enginecore.Broke{Call: id, Err: err})
			}
		})
	}
	c.questions <- a.Question // the previous question has been answered
}

// maxAnswer is the longest answer that a peer may give, in bytes.
const maxAnswer = 4096

// converse sends questions to another server until either side hangs up.
func (e *End) converse(ctx context.Context, id enginecore.Call, address string,
	questions <-chan enginecore.Question) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	answers := bufio.NewReaderSize(conn, maxAnswer)
	for {
		var q enginecore.Question
		select {
		case q = <-questions:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := writeLine(conn, sideRequestOf(&q)); err != nil {
			return err
		}
		for waiting := true; waiting; {
			var a sideAnswer
			line, err := answers.ReadSlice('\n')
			if err == nil {
				err = json.Unmarshal(line, &a)
			}
			if err != nil {
				return err
			}
			waiting = a.Waiting
			e.o.Engine.Send(enginecore.Replied{Call: id, Reply: a.reply()})
		}
	}
}

// inquire passes a peer's question to the core. The answers go to a channel with space for two.
func (e *End) inquire(number *enginecore.Inquiry, q enginecore.Question, answers chan<- enginecore.Answer) bool {
	return e.o.Engine.With(func(now machine.Time) {
		if *number == 0 {
			e.last++
			*number = e.last
			e.asked[*number] = answers
		}
		e.o.Engine.InputLocked(now, enginecore.Asked{Inquiry: *number, Question: q})
	})
}

// left removes a peer that has left.
func (e *End) left(number enginecore.Inquiry) {
	e.o.Engine.With(func(now machine.Time) {
		delete(e.asked, number)
		e.o.Engine.InputLocked(now, enginecore.Left{Inquiry: number})
	})
}
