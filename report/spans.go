package report

import (
	"github.com/windtunnel/windtunnel/core/flow"
)

// Span is a named stretch of a request's life, from one step to another.
type Span struct {
	Name string
	// What is what the span tells, in words.
	What string
	// From and To are the steps that begin and end it. The first of the From
	// steps that happens begins it.
	From []flow.At
	To   flow.At
	// Completed says that only requests that completed count: an error's last
	// byte is no answer.
	Completed bool
	// Leg says that it is of the prefill leg that a sidecar sends to a prefill server;
	// all others are of the request that its client waits for.
	Leg bool
}

// Spans are the spans that summaries measure, in the order in which they are
// printed.
func Spans() []Span {
	const completed, leg = true, true
	at := func(h flow.Hop, s flow.Step) flow.At { return flow.At{Hop: h, Step: s} }
	received := []flow.At{at(flow.Server, flow.Part1Received), at(flow.Server, flow.RequestReceived)}
	return []Span{
		{"total", "request sent to last token, at the client", []flow.At{at(flow.Client, flow.RequestSent)},
			at(flow.Client, flow.LastTokenReceived), completed, false},
		{"ttft", "request sent to first token, at the client", []flow.At{at(flow.Client, flow.RequestSent)},
			at(flow.Client, flow.FirstTokenReceived), completed, false},
		{"pick", "request whole at the EPP to endpoint picked", []flow.At{at(flow.EPP, flow.RequestReceived)},
			at(flow.EPP, flow.EndpointPicked), false, false},
		{"hold", "part 1 sent to part 2 sent, at the EPP", []flow.At{at(flow.EPP, flow.Part1Sent)},
			at(flow.EPP, flow.Part2Sent), false, false},
		{"queueP", "request received to prefill started, at the prefill server of a prefill leg", received,
			at(flow.Server, flow.PrefillStarted), false, leg},
		{"prefillP", "prefill started to finished, at the prefill server of a prefill leg",
			[]flow.At{at(flow.Server, flow.PrefillStarted)}, at(flow.Server, flow.PrefillFinished), false, leg},
		{"queue", "request received to prefill started, at the model server", received,
			at(flow.Server, flow.PrefillStarted), false, false},
		{"prefill", "prefill started to finished", []flow.At{at(flow.Server, flow.PrefillStarted)},
			at(flow.Server, flow.PrefillFinished), false, false},
		{"decode", "decode started to last token sent, at the model server",
			[]flow.At{at(flow.Server, flow.DecodeStarted)}, at(flow.Server, flow.LastTokenSent), false, false},
	}
}

// spanIndex finds the spans that a step begins and ends.
type spanIndex struct {
	spans []Span
	of    map[flow.At]borders
	lives []inLife
}

// borders are the spans that one step begins, and those that it ends.
type borders struct{ begins, ends []int }

func newSpanIndex() spanIndex {
	x := spanIndex{spans: Spans(), of: map[flow.At]borders{}}
	x.lives = spansOfLives(x.spans)
	for i, s := range x.spans {
		for _, from := range s.From {
			b := x.of[from]
			b.begins = append(b.begins, i)
			x.of[from] = b
		}
		b := x.of[s.To]
		b.ends = append(b.ends, i)
		x.of[s.To] = b
	}
	return x
}
