package enginecore

import (
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// Message is an input of a Core.
type Message interface{ apply(s *Core) }

// Messages about completions.
type (
	// Submit begins a Sequence. Exactly one effect of the engine ends it: engine.Finished, Rejected or Aborted.
	Submit struct{ *Sequence }
	// Abort ends a Sequence at any time. The Core ignores it after the end.
	Abort struct{ *Sequence }
	// Resume continues a Sequence that pauses after its first token.
	Resume struct{ *Sequence }
	// Look makes the engine report the running steps (engine.Look).
	Look struct{}
)

// Messages of other servers.
type (
	// Asked is a question from another server. Answer follows, now or later. Until then, the same Inquiry asks nothing
	// else.
	Asked struct {
		Inquiry  Inquiry
		Question Question
	}
	// Left reports that a server which asked has hung up.
	Left struct{ Inquiry Inquiry }
	// Replied is the answer to an Ask.
	Replied struct {
		Call  Call
		Reply Reply
	}
	// Broke reports that the connection of a call failed.
	Broke struct {
		Call Call
		Err  error
	}
)

// Messages of the Network.
type (
	// Moved reports the progress of a Move.
	Moved struct {
		Call Call
		How  Progress
		// Bytes is the number of all bytes on the wire.
		Bytes int64
	}
	// Found is the answer to a LookUp: the number of the blocks in the external cache. Writer is the engine that has
	// still to write some of them.
	Found struct {
		Call   Call
		Blocks int
		Writer string
	}
	// Sending reports that a connector which blocks this server begins (By is 1) or ends (-1) to read from it.
	Sending struct{ By int }
)

// Control changes the whole server. Controlled answers.
type Control struct {
	engine.Control
	// Level is the level of engine.OpSleep, 1 or 2.
	Level int
}

func (m Submit) apply(s *Core)   { s.submit(m.Sequence) }
func (m Abort) apply(s *Core)    { s.abort(m.Sequence) }
func (m Resume) apply(s *Core)   { s.resume(m.Sequence) }
func (Look) apply(s *Core)       { s.input(engine.Look{}) }
func (m Asked) apply(s *Core)    { s.asked(m.Inquiry, &m.Question) }
func (m Left) apply(s *Core)     { s.left(m.Inquiry) }
func (m Replied) apply(s *Core)  { s.replied(m.Call, &m.Reply) }
func (m Broke) apply(s *Core)    { s.broke(m.Call, m.Err) }
func (m Moved) apply(s *Core)    { s.moved(&m) }
func (m Found) apply(s *Core)    { s.found(&m) }
func (m Sending) apply(s *Core)  { s.input(engine.KVSending{By: m.By}) }
func (m *Control) apply(s *Core) { s.control(m) }

// Effect is one action for the driver, or one event. If Do is nil, it is the engine's effect number Engine
// (Effects.OfEngine).
type Effect struct {
	At       machine.Time
	Engine   int32
	Sequence *Sequence // the sequence that it belongs to, if there is one
	Do       Action
}

// Due returns the time at which the effect was due.
func (e Effect) Due() machine.Time { return e.At }

// Action is the content of an Effect that is not the engine's.
type Action interface{ action() }

// Actions. Actions of a Network are messages to it.
type (
	// Ask sends a question to another server. The first question of a Call opens a connection, which stays open until
	// HangUp. Replied or Broke answers.
	Ask struct {
		Call     Call
		To       *connector.Remote
		Question Question
	}
	// HangUp ends a Call. No message about it follows.
	HangUp struct{ Call Call }
	// Answer answers an Asked. With Last, the Inquiry is over.
	Answer struct {
		Inquiry Inquiry
		Reply   Reply
		Last    bool
	}
	// Event reports a change of KV blocks. Blocks is their number.
	Event struct{ kv.Event }
	// Fetched reports that a cache has arrived, Lost that one cannot be fetched, and Kept that the report to its holder
	// that it is no longer needed failed. They are for logs.
	Fetched struct {
		Tokens int
		Bytes  int64
		// Took is the whole duration, Posted the time until the holder had answered.
		Took, Posted machine.Time
	}
	Lost struct {
		From *connector.Remote // nil is the external cache
		Err  error
	}
	Kept struct{ Err error }
	// Controlled answers a Control.
	Controlled struct {
		Control *Control
		Done    bool
	}
)

func (Ask) action()        {}
func (HangUp) action()     {}
func (Answer) action()     {}
func (Event) action()      {}
func (Fetched) action()    {}
func (Lost) action()       {}
func (Kept) action()       {}
func (Controlled) action() {}

// Effects collects a Core's effects.
type Effects struct {
	List []Effect
	// Engine holds the engine's effects. List leaves out those that only the Core needs.
	Engine  engine.Effects
	applied int // number of Engine's effects processed
}

// OfEngine returns the engine's effect that an Effect without an Action refers to.
func (x *Effects) OfEngine(e *Effect) *engine.Effect { return &x.Engine.List[e.Engine] }

// Len returns the number of effects.
func (x *Effects) Len() int { return len(x.List) }

// DueAt returns the time at which effect number i was due.
func (x *Effects) DueAt(i int) machine.Time { return x.List[i].At }

// Reset removes all effects and keeps the memory.
func (x *Effects) Reset() {
	clear(x.List)
	x.List, x.applied = x.List[:0], 0
	x.Engine.Reset()
}
