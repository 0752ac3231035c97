package report

import (
	"github.com/windtunnel/windtunnel/core/record"
)

// Span is a named stretch of a request's life, from one step to another.
type Span struct {
	Name string
	// What describes the span in words.
	What string
	// From and To are the steps that begin and end it. The first From step of a request begins the span.
	From []record.At
	To   record.At
	// Completed says that only completed requests count, because an error's last byte is no answer.
	Completed bool
	// Leg says that the span is of the prefill leg that a sidecar sends to a prefill server. Other spans are of the
	// request that the client waits for.
	Leg bool
}

// Spans returns the spans that summaries measure, in the order of printing.
func Spans() []Span {
	const completed, leg = true, true
	at := func(h record.Hop, s record.Step) record.At { return record.At{Hop: h, Step: s} }
	received := []record.At{at(record.Server, record.Part1Received), at(record.Server, record.RequestReceived)}
	return []Span{
		{"total", "request sent to last token, at the client", []record.At{at(record.Client, record.RequestSent)},
			at(record.Client, record.LastTokenReceived), completed, false},
		{"ttft", "request sent to first token, at the client", []record.At{at(record.Client, record.RequestSent)},
			at(record.Client, record.FirstTokenReceived), completed, false},
		{"pick", "request whole at the EPP to endpoint picked", []record.At{at(record.EPP, record.RequestReceived)},
			at(record.EPP, record.EndpointPicked), false, false},
		{"hold", "part 1 sent to part 2 sent, at the EPP", []record.At{at(record.EPP, record.Part1Sent)},
			at(record.EPP, record.Part2Sent), false, false},
		{"queueP", "request received to prefill started, at the prefill server of a prefill leg", received,
			at(record.Server, record.PrefillStarted), false, leg},
		{"prefillP", "prefill started to finished, at the prefill server of a prefill leg",
			[]record.At{at(record.Server, record.PrefillStarted)}, at(record.Server, record.PrefillFinished), false,
			leg},
		{"queue", "request received to prefill started, at the model server", received,
			at(record.Server, record.PrefillStarted), false, false},
		{"prefill", "prefill started to finished", []record.At{at(record.Server, record.PrefillStarted)},
			at(record.Server, record.PrefillFinished), false, false},
		{"decode", "decode started to last token sent, at the model server",
			[]record.At{at(record.Server, record.DecodeStarted)}, at(record.Server, record.LastTokenSent), false,
			false},
	}
}

// spanIndex finds the spans that a step begins and ends.
type spanIndex struct {
	spans []Span
	of    map[record.At]borders
	lives []lifeSpan
}

// borders are the spans that one step begins, and those that it ends.
type borders struct{ begins, ends []int }

func newSpanIndex() spanIndex {
	x := spanIndex{spans: Spans(), of: map[record.At]borders{}}
	x.lives = lifeSpansOf(x.spans)
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
