package latency

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// Document003 is a timer with the step times of document 003's worked example of a request (docs/documents.md): 200 ms
// for a prompt of 2,000 tokens, and 20 ms for a token of an answer, whatever else is in the step. They are not
// measured, and some hardware cannot reach them. New does not refuse them, but reports it (Timer.Doubt).
type Document003 struct{}

const (
	documentPrompt  = 2000
	documentPrefill = 200 * machine.Millisecond
	documentToken   = 20 * machine.Millisecond
)

// StepTime implements engine.StepTimer. A step with prompts and tokens takes the sum of both times.
func (d Document003) StepTime(s *engine.Step) engine.Fixed {
	t := engine.ToFixed(documentPrefill/documentPrompt) * engine.Fixed(s.PrefillTokens)
	if s.DecodeSeqs > 0 {
		t += engine.ToFixed(documentToken)
	}
	return max(t, oneNanosecond)
}

// DecodeLine implements engine.StepTimer: a flat line.
func (Document003) DecodeLine(int, int64) (engine.Line, bool) {
	return engine.Line{Base: engine.ToFixed(documentToken), Until: engine.NoKnot}, true
}

// doubt returns the reason not to trust these figures on a hardware, the document's own example first.
func (d Document003) doubt(h *hardware.Hardware) string {
	doubt := fmt.Sprintf("step times are document 003's: %s for a prompt of %d tokens and %s for each token, which "+
		"nobody measured", documentPrefill.Duration(), documentPrompt, documentToken.Duration())
	if h == nil {
		return doubt
	}
	own := func(what string, s *engine.Step) error {
		return h.RefuseFaster(what, s, int64(d.StepTime(s).Time()))
	}
	err := cmp.Or(own(fmt.Sprintf("a prompt of %d tokens", documentPrompt), hardware.PrefillStep(documentPrompt)),
		own("a token of one answer", hardware.DecodeStep(1, documentPrompt)), checkAgainst(d, h, "they"))
	var fast *hardware.TooFastError
	if errors.As(err, &fast) {
		doubt += fmt.Sprintf("; %s takes %s, faster than the hardware: %s", strings.TrimPrefix(fast.What, "they: "),
			hardware.Round(fast.Claimed), fast.Bound.Why)
	}
	return doubt
}
