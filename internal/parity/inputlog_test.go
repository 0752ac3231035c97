package parity

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/nightly"
)

// A log of a picker's inputs has the same effects in another picker. The test covers every recorded configuration
// with its inputs, and also starts from a snapshot in the middle. Outside nightly runs, it covers a tenth of them.
func TestRecordingsThroughTheLog(t *testing.T) {
	t.Parallel()
	decisions := 0
	for _, f := range recordings(t) {
		topic := strings.TrimSuffix(filepath.Base(f), ".jsonl.gz")
		t.Run(topic, func(t *testing.T) {
			list, err := Load(os.DirFS(filepath.Dir(f)), filepath.Base(f))
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range nightly.Some(list) {
				if l.Accepted == nil && l.Steps != nil && l.elsewhere() == "" {
					decisions += throughTheLog(t, &l)
				}
			}
		})
	}
	t.Logf("%d decisions", decisions)
}

// throughTheLog plays a line with a log, then the log, and returns the number of decisions.
func throughTheLog(t *testing.T, l *Line) int {
	var log bytes.Buffer
	var forced [][]int32
	open := func(c core.Config, page func(string) (string, error)) (driver, error) {
		m, err := core.New(c)
		if err != nil {
			return nil, err
		}
		h := inputlog.Header{Picker: 1, Detail: true, AllowExperimental: true}
		if l.Config != "" || l.Objects == nil {
			h.Config = &l.Config
		}
		v := &saving{virtual: virtual{m: m, page: page},
			log: inputlog.New(m, h, func(lines []byte) { log.Write(lines) })}
		v.log.Start()
		return v, nil
	}
	playForced(l, open, &forced)
	p := inputlog.Player{Registry: plugins.Builtin(), CheckStates: true, Options: func(o *picker.Options) {
		o.Force = func(*picker.Cycle, string, []int32) []int32 {
			next := forced[0]
			forced = forced[1:]
			return next
		}
		o.Stopwatch = func() machine.Time { return 0 }
	}}
	for line := range bytes.Lines(log.Bytes()) {
		if err := p.Line(bytes.TrimSpace(line)); err != nil {
			t.Errorf("%s: %v\n%.2000s", l.ID, err, line)
			return 0
		}
	}
	if p.First != nil || p.Skipped > 0 {
		t.Errorf("%s: %v %+v", l.ID, p.First, p.Counts)
	}
	return p.Decisions
}

// saving is a driver that sometimes saves the machine's state before time passes. A player of the log continues from
// there.
type saving struct {
	virtual
	log  *inputlog.Log
	next machine.Time
}

func (v *saving) advance(now machine.Time) {
	if now > v.now && v.now >= v.next {
		v.log.Start()
		v.next = v.now + v.now/2
	}
	v.virtual.advance(now)
}

// playForced plays a line, and records the choices that were forced.
func playForced(l *Line, open opener, forced *[][]int32) {
	playWith(l, open, func(choose force) force {
		return func(c *picker.Cycle, profile string, candidates []int32) []int32 {
			out := choose(c, profile, candidates)
			*forced = append(*forced, append([]int32(nil), out...))
			return out
		}
	})
}
