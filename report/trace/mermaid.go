package trace

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/flow"
)

func bits(f float64) uint64 { return math.Float64bits(f) }

// arrow is what a step looks like in a sequence diagram: from its hop to another, or,
// where it goes nowhere, a note.
type arrow struct {
	to   flow.Hop
	line string
	say  string
}

// arrows are the steps with which something leaves a hop. Others are notes.
var arrows = map[flow.At]arrow{
	{Hop: flow.Client, Step: flow.RequestSent}:      {flow.EPP, "->>", "request (through Envoy)"},
	{Hop: flow.EPP, Step: flow.Part1Sent}:           {flow.Server, "->>", "part 1, held open"},
	{Hop: flow.EPP, Step: flow.RequestPassed}:       {flow.Server, "->>", "request"},
	{Hop: flow.EPP, Step: flow.Part2Sent}:           {flow.Server, "->>", "part 2"},
	{Hop: flow.EPP, Step: flow.Answered}:            {flow.Client, "-->>", "answer"},
	{Hop: flow.Sidecar, Step: flow.PrefillLegSent}:  {flow.Server, "->>", "prefill"},
	{Hop: flow.Sidecar, Step: flow.EncodeLegSent}:   {flow.Server, "->>", "encode"},
	{Hop: flow.Sidecar, Step: flow.DecodeLegSent}:   {flow.Server, "->>", "decode"},
	{Hop: flow.Sidecar, Step: flow.FirstTokenSeen}:  {flow.Client, "-->>", "first token"},
	{Hop: flow.Sidecar, Step: flow.ResponseEndSeen}: {flow.Client, "-->>", "end"},
	{Hop: flow.Sidecar, Step: flow.Answered}:        {flow.Client, "-->>", "answer"},
	{Hop: flow.Server, Step: flow.FirstTokenSent}:   {flow.EPP, "-->>", "first token"},
	{Hop: flow.Server, Step: flow.LastTokenSent}:    {flow.EPP, "-->>", "last token"},
	{Hop: flow.Server, Step: flow.Rejected}:         {flow.EPP, "-->>", "error"},
	{Hop: flow.EPP, Step: flow.FirstTokenSeen}:      {flow.Client, "-->>", "first token"},
	{Hop: flow.EPP, Step: flow.ResponseEndSeen}:     {flow.Client, "-->>", "end"},
}

// WriteMermaid writes the sequence diagram of one request, for pasting into an issue:
// its steps in order, with times since it was sent in milliseconds.
func WriteMermaid(w io.Writer, events []flow.Event) error {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b flow.Event) int { return cmp.Compare(a.Time, b.Time) })
	d := &diagram{names: map[string]string{}}
	served := false // by a sidecar
	for _, e := range events {
		served = served || e.Hop == flow.Sidecar
		d.at(e)
	}
	var legs []string // endpoints that a sidecar sent to, which answer it
	own := ""
	for _, e := range events {
		if e.Hop == flow.Sidecar && (e.Step == flow.PrefillLegSent || e.Step == flow.EncodeLegSent) {
			legs = append(legs, e.Endpoint)
		}
	}
	for _, e := range events {
		if e.Hop == flow.Server && !slices.Contains(legs, e.Endpoint) {
			own = e.Endpoint
		}
	}
	for _, e := range events {
		time := fmt.Sprintf("%.3f ms", milliseconds(e.Time-events[0].Time))
		from := d.at(e)
		a, moves := arrows[flow.At{Hop: e.Hop, Step: e.Step}]
		if !moves {
			d.line("Note over %s: %s %s%s", from, time, clean(string(e.Step)), beside(e))
			continue
		}
		to := a.to
		endpoint := e.Endpoint
		switch {
		case e.Hop == flow.EPP && to == flow.Server && served:
			to = flow.Sidecar
		case e.Hop == flow.Server && served:
			to, endpoint = flow.Sidecar, ""
		case e.Hop == flow.Sidecar && e.Step == flow.DecodeLegSent && own != "":
			endpoint = own
		case e.Hop == flow.Sidecar && to == flow.Client:
			to = flow.EPP
		}
		d.line("%s%s%s: %s %s", from, a.line, d.name(to, endpoint), time, a.say)
	}
	_, err := fmt.Fprintf(w, "sequenceDiagram\n%s%s", strings.Join(d.who, ""), strings.Join(d.lines, ""))
	return err
}

// beside is what a note says besides its step.
func beside(e flow.Event) string {
	switch e.Step {
	case flow.EndpointPicked:
		return " " + clean(cmp.Or(text(e.Details.Get("name")), e.Endpoint))
	case flow.Finished:
		return " " + clean(text(e.Details.Get("outcome")))
	case flow.PrefillDecided:
		return " " + clean(text(e.Details.Get("decision")))
	}
	if reason := text(e.Details.Get("reason")); reason != "" {
		return " (" + clean(reason) + ")"
	}
	return ""
}

// clean keeps a diagram's own signs out of a text from outside.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune(";#:%<>\"", r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}

type diagram struct {
	names map[string]string // of participants, by hop and endpoint
	who   []string
	lines []string
}

func (d *diagram) line(format string, args ...any) {
	d.lines = append(d.lines, "    "+fmt.Sprintf(format, args...)+"\n")
}

func (d *diagram) at(e flow.Event) string { return d.name(e.Hop, e.Endpoint) }

// name is a participant's; each model server is one of its own.
func (d *diagram) name(hop flow.Hop, endpoint string) string {
	key, label := string(hop), string(hop)
	if hop == flow.Server {
		key, label = key+endpoint, "server "+endpoint
	}
	if d.names[key] == "" {
		d.names[key] = fmt.Sprintf("p%d", len(d.names))
		d.who = append(d.who, fmt.Sprintf("    participant %s as %s\n", d.names[key],
			strings.ReplaceAll(clean(strings.ReplaceAll(label, ":", "：")), "：", "#58;")))
	}
	return d.names[key]
}
