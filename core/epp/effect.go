package epp

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Effect is one thing that the driver should do, or that happened. Kind's constants say which fields each kind uses.
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

// Effects is the Machine's buffer of effects.
type Effects = machine.Effects[Effect]

// Due returns the time at which the effect was due.
func (e Effect) Due() machine.Time { return e.At }

// Door is the one way into a running Machine. It adds the time and makes sure that effects are carried out. A message
// takes effect before Input returns.
type Door interface{ Input(m Message) }
