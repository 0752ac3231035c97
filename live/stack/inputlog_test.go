package stack

import (
	"bytes"
	"sync"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/report"
)

// inputs is a log of what enters a stack's picker, in files that are full soon:
// each begins with the picker's state.
type inputs struct {
	log  *epp.InputLog
	mu   sync.Mutex
	buf  bytes.Buffer
	last int // where the last file began
}

const inputFileBytes = 100_000

func (x *inputs) Full() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.buf.Len()-x.last > inputFileBytes
}

func (x *inputs) Next() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last = x.buf.Len()
	return nil
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
	p := inputlog.Player{Registry: reg, CheckStates: true}
	for line := range bytes.Lines(r.inputs.buf.Bytes()) {
		if err := p.Line(bytes.TrimSpace(line)); err != nil {
			t.Errorf("%v\n%.1000s", err, line)
			return
		}
	}
	r.played = p.Counts
	if p.First != nil || p.Skipped > 0 || p.Gaps > 0 {
		t.Errorf("played again, something else comes of it: %v %+v", p.First, p.Counts)
	}
}
