package epp

import (
	"errors"
	"io"
	"testing"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
)

const evicting = `
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 1}}
- {type: random-picker}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: random-picker}]}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  enableEviction: true
`

func (k *Picking) objectives(o map[string]int) {
	k.Input(core.Objects{Selection: objects.Selection{Objects: picker.Objects{Objectives: o}}, KeepEndpoints: true})
}

// A waiting request of a higher priority ends one that is being served: its
// stream gets the recorded answer and ends, before its response as well as in
// the middle of it.
func TestEvictionOverTheWire(t *testing.T) {
	for _, answering := range []bool{false, true} {
		k := picking(t, evicting, 1)
		k.objectives(map[string]int{"low": -1, "high": 10})
		rig := startWire(t, k)
		open := func(objective string) wireStream { return rig.open("x-llm-d-inference-objective", objective) }
		low := open("low")
		for low.next().GetRequestBody() == nil {
		}
		if answering {
			low.respond("data: {}\n\n", false)
			for low.next().GetResponseBody() == nil {
			}
		}
		high := open("high")
		answer := low.next().GetImmediateResponse()
		if answer.GetStatus().GetCode() != 429 || string(answer.GetBody()) != "request evicted by flow control" ||
			len(answer.GetHeaders().GetSetHeaders()) != 1 ||
			string(answer.Headers.SetHeaders[0].Header.RawValue) != "evicted" {
			t.Errorf("answering %v: the held stream got %v", answering, answer)
		}
		if _, err := low.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("answering %v: the held stream ended with %v", answering, err)
		}
		if first := high.next(); first.GetRequestHeaders() == nil {
			t.Errorf("answering %v: the other one got %v", answering, first)
		}
	}
}
