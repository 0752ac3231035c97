package steptimes

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/measured"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/sources"
)

// The line has the expected error and the other sources, each where there is one.
func TestString(t *testing.T) {
	e := &measured.Error{Rows: 41, TTFT: 0.14, TPOT: 0.07}
	for want, s := range map[string]Summary{
		"A on H100; TPOT ±7 % on 41 measured configurations; TTFT ±14 %": {Name: "A on H100", Expected: e},
		"A on H100; TPOT ±7 % on 41 measured configurations; TTFT ±14 %; " +
			"with other sources TTFT of 400 tokens +20% (B)": {Name: "A on H100", Expected: e, Prompt: 400,
			TTFT: &sources.Range{High: 0.2, Slowest: "B"}},
	} {
		if got := s.String(); got != want {
			t.Errorf("found %q, expected %q", got, want)
		}
	}
}
