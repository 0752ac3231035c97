package enginecore

import (
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// Message is something that enters a Core.
type Message interface{ message() }

// Messages about completions.
type (
	// Submit begins a Sequence. An effect of the engine says how it ends, exactly
	// once: engine.Finished, Rejected or Aborted.
	Submit struct{ *Sequence }
	// Abort ends a Sequence at any moment of its life; of one that is over it is
	// nothing.
	Abort struct{ *Sequence }
	// Resume lets a Sequence go on that pauses after its first token.
	Resume struct{ *Sequence }
	// Look asks that the steps under way be reported (engine.Look).
	Look struct{}
)

// Messages of other servers.
type (
	// Asked is somebody's question. Answer follows, now or later; until then the
	// same Inquiry asks nothing else.
	Asked struct {
		Inquiry  Inquiry
		Question Question
	}
	// Left says that somebody who asked has hung up.
	Left struct{ Inquiry Inquiry }
	// Replied is what came back of an Ask.
	Replied struct {
		Call  Call
		Reply Reply
	}
	// Broke says that there is no connection to whom was asked.
	Broke struct {
		Call Call
		Err  error
	}
)

// Messages of the Network.
type (
	// Moved tells what became of a Move.
	Moved struct {
		Call Call
		How  Progress
		// Bytes are those on the wire, all of them.
		Bytes int64
	}
	// Found is the answer to a LookUp: the external cache has that many of the
	// blocks. Writer is the engine that has still to write some of them.
	Found struct {
		Call   Call
		Blocks int
		Writer string
	}
	// Sending says that a connector which blocks this server begins (By is 1) or
	// ends (-1) to read from it.
	Sending struct{ By int }
)

// Control changes the whole server. Controlled answers.
type Control struct {
	engine.Control
	// Level is that of engine.OpSleep, 1 or 2.
	Level int
}

func (Submit) message()   {}
func (Abort) message()    {}
func (Resume) message()   {}
func (Look) message()     {}
func (Asked) message()    {}
func (Left) message()     {}
func (Replied) message()  {}
func (Broke) message()    {}
func (Moved) message()    {}
func (Found) message()    {}
func (Sending) message()  {}
func (*Control) message() {}

// Effect is one thing that should be done, or that happened. Where Do is nil it
// is the engine's own effect number Engine (Effects.OfEngine).
type Effect struct {
	At       machine.Time
	Engine   int32
	Sequence *Sequence // whose it is, if anybody's
	Do       Action
}

// Due is when the effect was due.
func (e Effect) Due() machine.Time { return e.At }

// Action is what an Effect is about where it is not the engine's.
type Action interface{ action() }

// Actions. Those of a Network are messages to it.
type (
	// Ask puts a question to another server. The first of a Call opens a
	// connection, which stays open until HangUp. Replied or Broke answers.
	Ask struct {
		Call     Call
		To       *connector.Remote
		Question Question
	}
	// HangUp ends a Call. No more is heard of it.
	HangUp struct{ Call Call }
	// Answer answers whom Asked. After the Last there is nothing left to ask:
	// the Inquiry is over.
	Answer struct {
		Inquiry Inquiry
		Reply   Reply
		Last    bool
	}
	// Event tells of KV blocks. Blocks is how many.
	Event struct{ kv.Event }
	// Fetched says that a cache is here. Lost says that one cannot be fetched, and
	// Kept that its holder could not be told that it is needed no more. They are for
	// logs.
	Fetched struct {
		Tokens int
		Bytes  int64
		// Took is the whole time, Posted that until the holder had answered.
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

// Effects is a Core's buffer.
type Effects struct {
	List []Effect
	// Engine are the engine's effects; those that concern nobody outside are not
	// in List.
	Engine engine.Effects
	heard  int // of Engine
}

// OfEngine is the engine's effect that an Effect without an Action stands for.
func (x *Effects) OfEngine(e *Effect) *engine.Effect { return &x.Engine.List[e.Engine] }

// Len is the number of effects.
func (x *Effects) Len() int { return len(x.List) }

// DueAt is the time at which effect number i was due.
func (x *Effects) DueAt(i int) machine.Time { return x.List[i].At }

// Reset empties the buffer and keeps its memory.
func (x *Effects) Reset() {
	clear(x.List)
	x.List, x.heard = x.List[:0], 0
	x.Engine.Reset()
}
