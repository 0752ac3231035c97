package modelserver

import (
	"strconv"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Document 003's response headers that a model server knows, in net/http's spelling. For a streamed answer, times that
// are unknown when the head leaves follow as trailers, if the client accepts trailers (TE).
const (
	prefillTimeHeader     = "X-Prefill-Time-Ms" // from the request's arrival to its first token
	decodeTimeHeader      = "X-Decode-Time-Ms"  // from the first token to the last
	totalTimeHeader       = "X-Total-Time-Ms"
	tokensHeader          = "X-Tokens-Generated"
	tokensPerSecondHeader = "X-Tokens-Per-Second" // during decoding
)

// timings sets the headers with times that are known when an answer begins and, with ended, those that are known at its
// end. The prefix is the one for trailers, or empty.
func (g *inferenceRequest) timings(began, ended bool, prefix string) {
	if !g.s.opts.TimingHeaders || len(g.seqs) == 0 {
		return
	}
	var one [1]modelserver.Choice
	choices := one[:]
	if len(g.now) > 1 {
		choices = make([]modelserver.Choice, len(g.now))
	}
	p, _ := g.box.Look(choices)
	arrived := g.seqs[0].Counted.Arrived
	h := g.w.Header()
	set := func(name, value string) { h[prefix+name] = []string{value} }
	if began {
		set(prefillTimeHeader, serve.Millis(p.FirstAt-arrived))
		if p.Fetched > 0 {
			set(disagg.TransferHeader, serve.Millis(p.Fetched))
		}
	}
	if !ended {
		return
	}
	tokens := 0
	for i := range p.Choices {
		tokens += p.Choices[i].Tokens
	}
	decode := max(0, p.EndedAt-p.FirstAt)
	set(decodeTimeHeader, serve.Millis(decode))
	set(totalTimeHeader, serve.Millis(max(0, p.EndedAt-arrived)))
	set(tokensHeader, strconv.Itoa(tokens))
	if decode > 0 {
		set(tokensPerSecondHeader, strconv.FormatFloat(float64(tokens)/decode.Seconds(), 'f', 1, 64))
	}
}
