package flowcontrol_test

import (
	"encoding/json"

	"pgregory.net/rapid"

	. "github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// driver is a machine with its effects, which a test reads when it likes.
type driver struct {
	*Controller
	fx Effects
}

func newDriver(config Config) (*driver, error) {
	c, err := NewController(config)
	return &driver{Controller: c}, err
}

func (d *driver) Input(now machine.Time, m Message) { d.Controller.Input(now, m, &d.fx) }

// Advance hands out everything since the last time. What the sink's Input
// brings about joins it.
func (d *driver) Advance(now machine.Time, sink func(Effect)) {
	d.Controller.Advance(now, &d.fx)
	for i := 0; i < len(d.fx.List); i++ {
		sink(d.fx.List[i])
	}
	d.fx.Reset()
}

// move continues with another machine that has the same state.
func (d *driver) move(t *rapid.T, config Config) {
	text, err := json.Marshal(d.Save())
	if err != nil {
		t.Fatal(err)
	}
	var s Saved
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if d.Controller, err = NewController(config); err != nil {
		t.Fatal(err)
	}
	d.Load(&s)
}
