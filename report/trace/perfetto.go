package trace

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Fields of Perfetto's trace format (perfetto/protos/perfetto/trace).
const (
	tracePacket = 1

	packetTime       = 8
	packetSequence   = 10
	packetEvent      = 11
	packetDescriptor = 60

	eventType       = 9
	eventTrack      = 11
	eventCategory   = 22
	eventName       = 23
	eventAnnotation = 4
	eventFlow       = 47 // fixed64
	eventCount      = 30
	eventAmount     = 44 // double

	annotationName = 10
	annotationText = 6
	annotationInt  = 4
	annotationReal = 5
	annotationBool = 2

	trackUUID   = 1
	trackName   = 2
	trackParent = 5
	trackCounts = 8 // a CounterDescriptor: the track is a counter

	sliceBegin, sliceEnd, instant, count = 1, 2, 3, 4
)

// lane is a row of nested slices: one request's spans at a part, and later those of others.
type lane struct {
	part  int // index in parts
	index int
	until machine.Time
	spans []Span
}

// lanes puts each request's spans at a part into the lowest free lane. Slices of one lane must nest, and requests of
// one pod overlap.
func lanes(spans []Span) (parts []Part, out []*lane) {
	type group struct {
		part       Part
		start, end machine.Time
		spans      []Span
	}
	groups := map[string]*group{}
	var order []*group
	for _, s := range spans {
		key := fmt.Sprint(s.Part, s.Request, s.Name == "llm_request", s.Start)
		if s.Name != "llm_request" {
			key = fmt.Sprint(s.Part, s.Request)
		}
		g := groups[key]
		if g == nil {
			g = &group{part: s.Part, start: s.Start}
			groups[key] = g
			order = append(order, g)
		}
		g.start, g.end = min(g.start, s.Start), max(g.end, s.End)
		g.spans = append(g.spans, s)
	}
	machine.SortStableFunc(order, func(a, b *group) int {
		return cmp.Or(cmp.Compare(rank(a.part), rank(b.part)), cmp.Compare(a.part.Service, b.part.Service),
			cmp.Compare(a.part.Instance, b.part.Instance), cmp.Compare(a.start, b.start))
	})
	var own []*lane
	for _, g := range order {
		if len(parts) == 0 || parts[len(parts)-1] != g.part {
			parts, own = append(parts, g.part), nil
		}
		for _, s := range nested(g.spans) { // a span that overlaps its sibling gets a lane of its own
			i := slices.IndexFunc(own, func(l *lane) bool { return l.until <= s[0].Start })
			if i < 0 {
				i = len(own)
				own = append(own, &lane{part: len(parts) - 1, index: i})
				out = append(out, own[i])
			}
			own[i].spans = append(own[i].spans, s...)
			for _, x := range s {
				own[i].until = max(own[i].until, x.End)
			}
		}
	}
	return parts, out
}

// nested splits spans into lists of nested spans, outermost first.
func nested(spans []Span) (out [][]Span) {
	spans = slices.Clone(spans)
	machine.SortStableFunc(spans, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
	})
	var stacks [][]machine.Time // ends of open spans, per list
next:
	for _, s := range spans {
		for i := range stacks {
			open := stacks[i]
			for len(open) > 0 && open[len(open)-1] <= s.Start && !(s.Start == s.End && open[len(open)-1] == s.End) {
				open = open[:len(open)-1]
			}
			stacks[i] = open
			if len(open) == 0 || s.End <= open[len(open)-1] {
				stacks[i] = append(open, s.End)
				out[i] = append(out[i], s)
				continue next
			}
		}
		stacks, out = append(stacks, []machine.Time{s.End}), append(out, []Span{s})
	}
	return out
}

// services are in the order in which a request reaches them.
var services = []string{"windtunnel", "envoy", "llm-d-epp", "llm-d-disagg-sidecar", "vllm-encode", "vllm-prefill",
	"vllm-decode", "vllm"}

func rank(p Part) int { return slices.Index(services, p.Service) }

func (p Part) String() string {
	if p.Instance == "" {
		return p.Service
	}
	return p.Service + " " + p.Instance
}

// WritePerfetto writes spans in Perfetto's native format, a protobuf of TrackEvents: a track for each part (client,
// picker, each pod), below it a lane for each concurrent request, and a flow per request from part to part. around adds
// counters to pods and a track of incidents; nil adds nothing.
func WritePerfetto(w io.Writer, spans []Span, around *Around) error {
	parts, rows := lanes(spans)
	p := &packets{w: w}
	for i, part := range parts {
		p.track(uint64(i)+1, 0, part.String())
	}
	const laneTracks = 1 << 32
	for i, l := range rows {
		uuid := uint64(laneTracks + i)
		p.track(uuid, uint64(l.part)+1, fmt.Sprintf("requests %d", l.index+1))
		walk(l.spans, func(s *Span, begins bool) {
			if !begins {
				p.event(s.End, uuid, sliceEnd, nil)
				return
			}
			p.event(s.Start, uuid, sliceBegin, s)
		})
		for j := range l.spans {
			for _, m := range l.spans[j].Marks {
				p.event(m.At, uuid, instant, &Span{Name: m.Name, Attributes: m.Attributes, Request: l.spans[j].Request})
			}
		}
	}
	if around != nil {
		p.around(around, parts)
	}
	return p.err
}

// around writes three counters for each endpoint, and the track of events.
func (p *packets) around(a *Around, parts []Part) {
	const counterTracks, momentTrack = 2 << 32, 3 << 32
	of, first := home(parts, a.earliest), map[string]uint64{}
	for i, e := range a.earliest {
		parent := uint64(of[e]) + 1
		if of[e] >= len(parts) {
			p.track(parent, 0, e)
		}
		first[e] = counterTracks + 3*uint64(i)
		for k, name := range []string{"waiting", "running", "KV cache (%)"} {
			p.write(message(nil, packetDescriptor,
				message(descriptor(first[e]+uint64(k), parent, name), trackCounts, nil)))
		}
	}
	value := func(at machine.Time, track uint64, field func(e []byte) []byte) {
		p.write(message(number(nil, packetTime, uint64(max(at, 0))), packetEvent,
			field(number(number(nil, eventType, count), eventTrack, track))))
	}
	whole := func(v int64) func(e []byte) []byte {
		return func(e []byte) []byte { return number(e, eventCount, uint64(max(v, 0))) }
	}
	for _, s := range a.samples {
		value(s.at, first[s.endpoint], whole(s.waiting))
		value(s.at, first[s.endpoint]+1, whole(s.running))
		value(s.at, first[s.endpoint]+2, func(e []byte) []byte {
			return protowire.AppendFixed64(protowire.AppendTag(e, eventAmount, protowire.Fixed64Type), bits(100*s.kv))
		})
	}
	if len(a.moments) > 0 {
		p.track(momentTrack, 0, "incidents")
	}
	for i := range a.moments {
		e := &a.moments[i]
		p.event(max(e.Time, 0), momentTrack, instant, &Span{Name: name(e), Attributes: about(e)})
	}
}

// walk calls a function at the begin and the end of each of nested spans, in an order that keeps them nested.
func walk(spans []Span, visit func(s *Span, begins bool)) {
	var open []*Span
	for i := range spans {
		s := &spans[i]
		for len(open) > 0 && (open[len(open)-1].End < s.Start || open[len(open)-1].End <= s.Start && s.End > s.Start ||
			open[len(open)-1].End < s.End) {
			visit(open[len(open)-1], false)
			open = open[:len(open)-1]
		}
		visit(s, true)
		open = append(open, s)
	}
	for _, s := range slices.Backward(open) {
		visit(s, false)
	}
}

type packets struct {
	w   io.Writer
	err error
}

func (p *packets) write(packet []byte) {
	if p.err == nil {
		packet = protowire.AppendVarint(protowire.AppendTag(packet, packetSequence, protowire.VarintType), 1)
		_, p.err = p.w.Write(message(nil, tracePacket, packet))
	}
}

func message(b []byte, field protowire.Number, of []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), of)
}

func number(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func (p *packets) track(uuid, parent uint64, name string) {
	p.write(message(nil, packetDescriptor, descriptor(uuid, parent, name)))
}

func descriptor(uuid, parent uint64, name string) []byte {
	d := message(number(nil, trackUUID, uuid), trackName, []byte(name))
	if parent != 0 {
		d = number(d, trackParent, parent)
	}
	return d
}

func (p *packets) event(at machine.Time, track uint64, kind uint64, s *Span) {
	e := number(number(nil, eventType, kind), eventTrack, track)
	if s != nil {
		e = message(message(e, eventName, []byte(s.Name)), eventCategory, []byte("request"))
		if s.Request != "" {
			e = message(e, eventAnnotation, annotation(Attribute{Key: "request", Value: s.Request}))
		}
		for _, a := range s.Attributes {
			e = message(e, eventAnnotation, annotation(a))
		}
		if s.Error != "" {
			e = message(e, eventAnnotation, annotation(Attribute{Key: "error", Value: s.Error}))
		}
		if kind == sliceBegin {
			id := Options{}.span(s.Request, "flow")
			e = protowire.AppendFixed64(protowire.AppendTag(e, eventFlow, protowire.Fixed64Type),
				binary.BigEndian.Uint64(id[:]))
		}
	}
	p.write(message(number(nil, packetTime, uint64(at)), packetEvent, e))
}

func annotation(a Attribute) []byte {
	b := message(nil, annotationName, []byte(a.Key))
	switch v := a.Value.(type) {
	case bool:
		return number(b, annotationBool, protowire.EncodeBool(v))
	case int:
		return number(b, annotationInt, uint64(v)) //nolint:gosec // the format uses two's complement
	case float64:
		return protowire.AppendFixed64(protowire.AppendTag(b, annotationReal, protowire.Fixed64Type), bits(v))
	}
	return message(b, annotationText, []byte(fmt.Sprint(a.Value)))
}

// chromeEvent is an event of the Trace Event format. Times are in microseconds.
type chromeEvent struct {
	Phase string         `json:"ph"`
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	TS    float64        `json:"ts"`
	Dur   *float64       `json:"dur,omitempty"`
	Scope string         `json:"s,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// chromeMeta returns an event that describes a process or a thread.
func chromeMeta(name string, pid, tid int, key string, value any) chromeEvent {
	return chromeEvent{Phase: "M", Name: name, PID: pid, TID: tid, Args: map[string]any{key: value}}
}

// WriteChrome writes spans as Chrome's JSON (the Trace Event format), for chrome://tracing and others: a process per
// part, a thread per lane. around is as in WritePerfetto.
func WriteChrome(w io.Writer, spans []Span, around *Around) error {
	parts, rows := lanes(spans)
	events := []chromeEvent{}
	for i, p := range parts {
		events = append(events, chromeMeta("process_name", i+1, 0, "name", p.String()),
			chromeMeta("process_sort_index", i+1, 0, "sort_index", i))
	}
	for _, l := range rows {
		pid, tid := l.part+1, l.index+1
		events = append(events, chromeMeta("thread_name", pid, tid, "name", fmt.Sprintf("requests %d", tid)))
		for i := range l.spans {
			s := &l.spans[i]
			args := map[string]any{"request": s.Request}
			for _, a := range s.Attributes {
				args[a.Key] = a.Value
			}
			if s.Error != "" {
				args["error"] = s.Error
			}
			took := microseconds(s.End - s.Start)
			events = append(events, chromeEvent{Phase: "X", Name: s.Name, Cat: "request", PID: pid, TID: tid,
				TS: microseconds(s.Start), Dur: &took, Args: args})
			for _, m := range s.Marks {
				events = append(events, chromeEvent{Phase: "i", Name: m.Name, Cat: "request", PID: pid, TID: tid,
					TS: microseconds(m.At), Scope: "t"})
			}
		}
	}
	if around != nil {
		events = append(events, around.chrome(parts)...)
	}
	return json.NewEncoder(w).Encode(map[string]any{"displayTimeUnit": "ms", "traceEvents": events})
}

func (a *Around) chrome(parts []Part) (out []chromeEvent) {
	of := home(parts, a.earliest)
	for _, e := range a.earliest {
		if of[e] >= len(parts) {
			out = append(out, chromeMeta("process_name", of[e]+1, 0, "name", e))
		}
	}
	for _, s := range a.samples {
		pid, at := of[s.endpoint]+1, microseconds(s.at)
		out = append(out, chromeEvent{Phase: "C", Name: "requests", PID: pid, TS: at,
			Args: map[string]any{"waiting": s.waiting, "running": s.running}},
			chromeEvent{Phase: "C", Name: "KV cache (%)", PID: pid, TS: at, Args: map[string]any{"in use": 100 * s.kv}})
	}
	for i := range a.moments {
		e := &a.moments[i]
		args := map[string]any{}
		for _, x := range about(e) {
			args[x.Key] = x.Value
		}
		out = append(out, chromeEvent{Phase: "i", Name: name(e), Cat: "incident", TS: microseconds(e.Time), Scope: "g",
			Args: args})
	}
	return out
}

func microseconds(t machine.Time) float64 { return float64(t) / 1e3 }
