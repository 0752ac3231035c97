package stack

import (
	"bytes"
	"sync"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/report"
)

// inputs is a log of what enters a stack's picker.
type inputs struct {
	log *epp.InputLog
	mu  sync.Mutex
	buf bytes.Buffer
}

func (x *inputs) Write(lines []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.buf.Write(lines)
}

// record has what enters the picker written down.
func (r *rig) record() {
	r.inputs = &inputs{}
	r.inputs.log = epp.NewInputLog(epp.InputLogOptions{Inputs: report.Inputs{To: r.inputs}})
	r.Record(r.inputs.log)
}

// playAgain plays what entered the picker into another one, from which the same
// must come.
func (r *rig) playAgain(t *testing.T, reg picker.Registry) {
	t.Helper()
	if err := r.inputs.log.Close(); err != nil {
		t.Error(err)
	}
	if reg == nil {
		reg = plugins.Builtin()
	}
	p := inputlog.Player{Registry: reg}
	for line := range bytes.Lines(r.inputs.buf.Bytes()) {
		if err := p.Line(bytes.TrimSpace(line)); err != nil {
			t.Errorf("%v\n%.1000s", err, line)
			return
		}
	}
	if p.First != nil || p.Skipped > 0 || p.Gaps > 0 {
		t.Errorf("played again, something else comes of it: %v %+v", p.First, p.Counts)
	}
}
