package trace

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

func bits(f float64) uint64 { return math.Float64bits(f) }

// arrow is a step in a sequence diagram: an arrow from its hop to another.
type arrow struct {
	to   record.Hop
	line string
	say  string
}

// arrows are the steps that leave a hop. Other steps are notes.
var arrows = map[record.At]arrow{
	{Hop: record.Client, Step: record.RequestSent}:      {record.EPP, "->>", "request (through Envoy)"},
	{Hop: record.EPP, Step: record.Part1Sent}:           {record.Server, "->>", "part 1, held open"},
	{Hop: record.EPP, Step: record.RequestPassed}:       {record.Server, "->>", "request"},
	{Hop: record.EPP, Step: record.Part2Sent}:           {record.Server, "->>", "part 2"},
	{Hop: record.EPP, Step: record.Answered}:            {record.Client, "-->>", "answer"},
	{Hop: record.Sidecar, Step: record.PrefillLegSent}:  {record.Server, "->>", "prefill"},
	{Hop: record.Sidecar, Step: record.EncodeLegSent}:   {record.Server, "->>", "encode"},
	{Hop: record.Sidecar, Step: record.DecodeLegSent}:   {record.Server, "->>", "decode"},
	{Hop: record.Sidecar, Step: record.FirstTokenSeen}:  {record.Client, "-->>", "first token"},
	{Hop: record.Sidecar, Step: record.ResponseEndSeen}: {record.Client, "-->>", "end"},
	{Hop: record.Sidecar, Step: record.Answered}:        {record.Client, "-->>", "answer"},
	{Hop: record.Server, Step: record.FirstTokenSent}:   {record.EPP, "-->>", "first token"},
	{Hop: record.Server, Step: record.LastTokenSent}:    {record.EPP, "-->>", "last token"},
	{Hop: record.Server, Step: record.Rejected}:         {record.EPP, "-->>", "error"},
	{Hop: record.EPP, Step: record.FirstTokenSeen}:      {record.Client, "-->>", "first token"},
	{Hop: record.EPP, Step: record.ResponseEndSeen}:     {record.Client, "-->>", "end"},
}

// WriteMermaid writes the sequence diagram of one request, for pasting into an issue: its steps in order, with the time
// since it was sent in milliseconds.
func WriteMermaid(w io.Writer, events []record.Event) error {
	events = slices.Clone(events)
	machine.SortStableFunc(events, func(a, b record.Event) int { return cmp.Compare(a.Time, b.Time) })
	d := &diagram{names: map[string]string{}}
	served := false // there is a sidecar
	for _, e := range events {
		served = served || e.Hop == record.Sidecar
		d.at(e)
	}
	var legs []string // endpoints of the sidecar's legs
	own := ""
	for _, e := range events {
		if e.Hop == record.Sidecar && (e.Step == record.PrefillLegSent || e.Step == record.EncodeLegSent) {
			legs = append(legs, e.Endpoint)
		}
	}
	for _, e := range events {
		if e.Hop == record.Server && !slices.Contains(legs, e.Endpoint) {
			own = e.Endpoint
		}
	}
	for _, e := range events {
		time := fmt.Sprintf("%.3f ms", milliseconds(e.Time-events[0].Time))
		from := d.at(e)
		a, moves := arrows[record.At{Hop: e.Hop, Step: e.Step}]
		if !moves {
			d.line("Note over %s: %s %s%s", from, time, clean(string(e.Step)), beside(e))
			continue
		}
		to := a.to
		endpoint := e.Endpoint
		switch {
		case e.Hop == record.EPP && to == record.Server && served:
			to = record.Sidecar
		case e.Hop == record.Server && served:
			to, endpoint = record.Sidecar, ""
		case e.Hop == record.Sidecar && e.Step == record.DecodeLegSent && own != "":
			endpoint = own
		case e.Hop == record.Sidecar && to == record.Client:
			to = record.EPP
		}
		d.line("%s%s%s: %s %s", from, a.line, d.name(to, endpoint), time, a.say)
	}
	_, err := fmt.Fprintf(w, "sequenceDiagram\n%s%s", strings.Join(d.who, ""), strings.Join(d.lines, ""))
	return err
}

// beside returns the text of a note after its step.
func beside(e record.Event) string {
	switch e.Step {
	case record.EndpointPicked:
		return " " + clean(cmp.Or(text(e.Details.Get("name")), e.Endpoint))
	case record.Finished:
		return " " + clean(text(e.Details.Get("outcome")))
	case record.PrefillDecided:
		return " " + clean(text(e.Details.Get("decision")))
	}
	if reason := text(e.Details.Get("reason")); reason != "" {
		return " (" + clean(reason) + ")"
	}
	return ""
}

// clean removes the diagram's own syntax from a text.
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

func (d *diagram) at(e record.Event) string { return d.name(e.Hop, e.Endpoint) }

// name returns the participant of a hop. Each model server is a participant of its own.
func (d *diagram) name(hop record.Hop, endpoint string) string {
	key, label := string(hop), string(hop)
	if hop == record.Server {
		key, label = key+endpoint, "server "+endpoint
	}
	if d.names[key] == "" {
		d.names[key] = fmt.Sprintf("p%d", len(d.names))
		d.who = append(d.who, fmt.Sprintf("    participant %s as %s\n", d.names[key],
			strings.ReplaceAll(clean(strings.ReplaceAll(label, ":", "：")), "：", "#58;")))
	}
	return d.names[key]
}
