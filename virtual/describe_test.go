package virtual

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

// firstDifference is the first event in which two records differ.
func firstDifference(a, b []record.Event) string {
	for i := range min(len(a), len(b)) {
		if !reflect.DeepEqual(a[i], b[i]) {
			return fmt.Sprintf("event %d: %+v, %+v", i, a[i], b[i])
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("%d and %d events", len(a), len(b))
	}
	return ""
}

// logged is a recorder that also takes the picker's inputs.
type logged struct {
	events []record.Event
	inputs *report.Inputs
}

func (l *logged) Record(e record.Event)  { l.events = append(l.events, e) }
func (l *logged) Inputs() *report.Inputs { return l.inputs }

// Every example gives the same record in bytes and without, and step by step, and so do the inputs
// of its picker, the prompts' hashes among them.
func TestBytesGiveTheSameRecord(t *testing.T) {
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	requests := 12
	if nightly.On() {
		requests = 100
	}
	for i, name := range append(files, "../examples/plain.yaml without a picker") {
		if !nightly.Each(i, 2) {
			continue
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			picked := false
			file, alone := strings.CutSuffix(name, " without a picker")
			play := func(o Options, log *bytes.Buffer) []record.Event {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if alone {
					text = bytes.Replace(text, []byte("epp: {config: {plugins: [{type: round-robin-picker}]}}"),
						[]byte("epp: {replicas: 0}"), 1)
				}
				s, err := scenario.Parse(file, text)
				if err != nil {
					t.Fatal(err)
				}
				if len(s.Pools[0].Endpoints) > 0 {
					t.Skip("has no model servers of its own")
				}
				s.Workload.Requests = min(s.Workload.Requests, requests)
				picked = s.Pools[0].Picked()
				rec := &logged{}
				if log != nil {
					rec.inputs = &report.Inputs{To: log}
				}
				if _, err := Play(s, rec, o); err != nil {
					t.Fatal(err)
				}
				return rec.events
			}
			written := play(Options{Bytes: true}, nil)
			if d := firstDifference(play(Options{}, nil), written); d != "" {
				t.Error(d)
			}
			if d := firstDifference(play(Options{StepByStep: true}, nil), written); d != "" {
				t.Error("step by step: ", d)
			}
			var in, inBytes bytes.Buffer
			if d := firstDifference(play(Options{}, &in), written); d != "" {
				t.Error("with a log: ", d)
			}
			if play(Options{Bytes: true}, &inBytes); picked != (in.Len() > 0) ||
				!bytes.Equal(in.Bytes(), inBytes.Bytes()) {
				t.Error("the picker has other inputs")
			}
		})
	}
}
