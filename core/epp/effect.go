package epp

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Effect is one thing that should be done, or that happened.
type Effect struct {
	At      machine.Time
	Kind    Kind
	Request *Request
	Target  *Target
	Source  int
	Count   int
	Flow    flowcontrol.Effect
	Needs   []picker.Need
	Plugin  picker.Plugin
	Err     error
}

// Effects is the Machine's buffer.
type Effects = machine.Effects[Effect]

// Due is when the effect was due.
func (e Effect) Due() machine.Time { return e.At }

// Door is the one way into a Machine that is in use: it adds the time, and sees
// to it that effects are carried out. What it is given takes effect before it
// returns.
type Door interface{ Input(m Message) }
