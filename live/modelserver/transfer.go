package modelserver

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
)

// What a server's core has to say to others goes over connections of which each
// belongs to one goroutine. The core sets all time limits: who is too late is
// hung up on.

// peers are the connections of one server to others and of others to it.
type peers struct {
	// Both maps are for who has the engine in hand.
	calls map[enginecore.Call]*peerCall
	asked map[enginecore.Inquiry]chan<- enginecore.Answer
	last  enginecore.Inquiry
	done  sync.WaitGroup // of the calls
}

// peerCall is a connection to another server.
type peerCall struct {
	hangUp    context.CancelFunc
	questions chan enginecore.Question
}

// act carries out what the core says; it has the engine in hand.
func (s *Server) act(e *enginecore.Effect) {
	switch a := e.Do.(type) {
	case enginecore.NetworkMessage:
		s.network.send(a)
	case enginecore.Ask:
		s.ask(&a)
	case enginecore.HangUp:
		if c := s.peers.calls[a.Call]; c != nil {
			c.hangUp()
			delete(s.peers.calls, a.Call)
		}
	case enginecore.Answer:
		if to := s.peers.asked[a.Inquiry]; to != nil {
			to <- a // there is room for all answers to one question
		}
	case enginecore.Event:
		s.publish(a.Event)
	case enginecore.Fetched:
		s.fetched(e.Sequence, &a)
	case enginecore.Lost:
		from := "the external cache"
		if a.From != nil {
			from = a.From.Address()
		}
		s.log.Warn(s.kvName()+" KV transfer failed", "server", s.name, "from", from, "error", a.Err)
	case enginecore.Kept:
		s.log.Warn("KV not released: the holder keeps it until its time is up", "server", s.name, "error", a.Err)
	case enginecore.Controlled:
		s.controlled(&a)
	}
}

// fetched is a prompt's KV cache that has come.
func (s *Server) fetched(q *enginecore.Sequence, a *enginecore.Fetched) {
	b := q.Owner.(*seq).box
	b.mu.Lock()
	b.Fetched = max(b.Fetched, a.Took)
	b.mu.Unlock()
	s.log.Info(s.kvName()+" KV transfer done", "server", s.name, "tokens", a.Tokens, "bytes", a.Bytes, "ms", a.Took.Seconds()*1e3)
}

// kvName is what log lines call the way on which caches travel.
func (s *Server) kvName() string {
	if name := s.connector().Name; name != "" && !strings.HasPrefix(name, "nixl") {
		return name
	}
	return "NIXL"
}

// ask puts a question over a call's connection; the first one opens it.
func (s *Server) ask(a *enginecore.Ask) {
	c := s.peers.calls[a.Call]
	if c == nil {
		if s.ctx.Err() != nil {
			return
		}
		ctx, hangUp := context.WithCancel(s.ctx)
		c = &peerCall{hangUp, make(chan enginecore.Question, 1)}
		s.peers.calls[a.Call] = c
		id, address := a.Call, a.To.Address()
		s.peers.done.Go(func() {
			defer hangUp()
			if err := s.converse(ctx, id, address, c.questions); ctx.Err() == nil {
				s.loop.send(enginecore.Broke{Call: id, Err: err})
			}
		})
	}
	c.questions <- a.Question // the one before has been answered
}

// maxAnswer is the longest answer that a peer may give, in bytes.
const maxAnswer = 4096

// converse puts questions to another server until somebody hangs up.
func (s *Server) converse(ctx context.Context, id enginecore.Call, address string, questions <-chan enginecore.Question) error {
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
			s.loop.send(enginecore.Replied{Call: id, Reply: a.reply()})
		}
	}
}

// inquire gives the core a stranger's question, whose answers go to a channel
// with room for two.
func (s *Server) inquire(number *enginecore.Inquiry, q enginecore.Question, answers chan<- enginecore.Answer) bool {
	return s.loop.ask(func(now machine.Time) {
		if *number == 0 {
			s.peers.last++
			*number = s.peers.last
			s.peers.asked[*number] = answers
		}
		s.loop.core.Input(now, enginecore.Asked{Inquiry: *number, Question: q}, &s.loop.fx)
	})
}

// left forgets a stranger.
func (s *Server) left(number enginecore.Inquiry) {
	s.loop.ask(func(now machine.Time) {
		delete(s.peers.asked, number)
		s.loop.core.Input(now, enginecore.Left{Inquiry: number}, &s.loop.fx)
	})
}
