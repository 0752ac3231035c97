package contract

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

type streamEffects = machine.Effects[stream.Effect]

// streams are core/epp/stream's machines. The picker's decision is a message to them.
func streams(t *rapid.T) Kind[*stream.Message, *streamEffects] {
	c := streamConfig(t)
	return streamsOf(func() Instance[*stream.Message, *streamEffects] {
		s := stream.New(c)
		return Instance[*stream.Message, *streamEffects]{Machine: s,
			State: func() string { return fmt.Sprint(s.Result(), s.Holding(), s.Metadata()) }}
	})
}

// pickerStreams are the streams of core/epp, together with their picker.
func pickerStreams(t *rapid.T) Kind[*stream.Message, *streamEffects] {
	c := streamConfig(t)
	return streamsOf(func() Instance[*stream.Message, *streamEffects] {
		x := &pickerStream{m: newPicker(t, "plugins: [{type: queue-scorer}, {type: inflight-load-producer}]", c)}
		x.enter(epp.Endpoints{List: []*picker.Endpoint{picker.NewEndpoint("default", "a", "10.0.0.1", "8000", nil)}})
		x.Stream = epp.NewStream(x.m, door{x}, 1)
		return Instance[*stream.Message, *streamEffects]{Machine: x, Is: x.Stream,
			State: func() string { return fmt.Sprint(x.Result(), x.Holding(), x.Metadata(), x.m.InFlight()) }}
	})
}

// pickerStream is a stream whose picker decides when it gets the message Decided.
type pickerStream struct {
	*epp.Stream
	m     *epp.Machine
	fx    epp.Effects
	now   machine.Time
	asked bool
}

type door struct{ x *pickerStream }

func (d door) Input(m epp.Message) { d.x.enter(m) }

// enter passes a message to the picker.
func (x *pickerStream) enter(m epp.Message) {
	x.m.Input(x.now, m, &x.fx)
	x.fx.Reset()
}

func (x *pickerStream) Input(now machine.Time, m *stream.Message, fx *streamEffects) {
	x.now = max(x.now, now)
	switch m.Kind {
	case stream.Decided:
		if x.asked {
			x.Decide(now, fx)
		} else {
			x.Stream.Advance(now, fx)
		}
		x.asked = false
	case stream.Evicted:
		x.Evict(now, fx)
	default:
		x.Stream.Input(now, m, fx)
	}
	for i := range fx.List {
		if fx.List[i].Kind == stream.Decide {
			x.asked = true
			x.enter(epp.Arrive{Request: x.Request()})
		}
	}
}

func (x *pickerStream) Advance(now machine.Time, fx *streamEffects) {
	x.now = max(x.now, now)
	x.Stream.Advance(now, fx)
}

func streamConfig(t *rapid.T) stream.Config {
	span := func(label string) machine.Time {
		return machine.Time(rapid.SampledFrom([]int{0, 20, 50}).Draw(t, label)) * machine.Millisecond
	}
	return stream.Config{Hold: rapid.Bool().Draw(t, "hold"),
		MaxBodyBytes: rapid.SampledFrom([]int{0, 60}).Draw(t, "bytes"), BodyIdle: span("idle"),
		BodyTotal: span("total"),
		Deadline:  span("deadline"), HoldLimit: span("hold limit"), MetadataBytes: 4, Errors: stream.EPPErrors}
}

func streamsOf(create func() Instance[*stream.Message, *streamEffects]) Kind[*stream.Message, *streamEffects] {
	return Kind[*stream.Message, *streamEffects]{
		Make: func() Instance[*stream.Message, *streamEffects] {
			x := create()
			x.Effects, x.Say = new(streamEffects), Plainly[stream.Effect]
			return x
		},
		Message: func(t *rapid.T, _ machine.Time) *stream.Message {
			m := &stream.Message{End: rapid.Bool().Draw(t, "end"), Reason: "it broke"}
			m.Kind = rapid.SampledFrom(
				[]stream.MessageKind{stream.Headers, stream.Headers, stream.Headers, stream.Body, stream.Body,
					stream.Body, stream.Trailers, stream.Decided, stream.Decided, stream.Decided,
					stream.ResponseHeaders, stream.ResponseBody, stream.ResponseBody, stream.ResponseTrailers,
					stream.Evicted, stream.Broken, stream.PeerGone}).Draw(t, "message")
			switch m.Kind {
			case stream.Headers:
				modes := rapid.SampledFrom(
					[]stream.BodyMode{stream.FullDuplex, stream.FullDuplex, stream.FullDuplex, stream.Streamed,
						stream.Buffered, stream.NoBody})
				m.Modes = stream.Modes{Request: modes.Draw(t, "request mode"), Response: modes.Draw(t, "response mode")}
				m.Head = header.Of(":method", "POST", ":path", "/v1/completions", "x-request-id", "r")
				m.End = rapid.IntRange(0, 5).Draw(t, "no body") == 0
			case stream.Body, stream.ResponseBody:
				m.Body = []byte(rapid.SampledFrom(
					[]string{`{"model":"m","prompt":"text"}`, "", "{", "data: {}\n\n"}).Draw(t, "body"))
			case stream.Decided:
				m.Decision = stream.Decision{Endpoint: "10.0.0.1:8000", Plain: rapid.Bool().Draw(t, "plain"),
					Leave: rapid.IntRange(0, 5).Draw(t, "leave") == 0}
				if rapid.IntRange(0, 3).Draw(t, "refused") == 0 {
					m.Decision.Answer = &stream.Answer{Status: 429}
				}
			case stream.ResponseHeaders:
				m.Head = header.Of(":status", rapid.SampledFrom([]string{"200", "503"}).Draw(t, "status"))
			case stream.Evicted:
				m.Answer = stream.Answer{Status: 429}
			}
			return m
		},
		Spans: []machine.Time{machine.Millisecond, 10 * machine.Millisecond, 25 * machine.Millisecond},
		Rest:  machine.Second,
	}
}
