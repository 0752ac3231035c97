package parity

import (
	"encoding/json"
	"errors"
	"slices"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// driver carries out an endpoint picker's effects: virtual does so here, and port_test.go uses live/epp behind its
// gRPC port. Both use the player's time.
type driver interface {
	core.Door
	// With runs f with the machine locked, to inspect it.
	With(f func(m *core.Machine, now machine.Time))
	// advance sets the time to now, and plays what is due.
	advance(now machine.Time)
	// connect opens an ext_proc stream.
	connect() conn
	// answer answers the waiting scrapes. Waiting returns their number.
	answer()
	waiting() int
	// await waits until done returns true. It returns false if that never happens.
	await(done func() bool) bool
}

// conn is Envoy's side of an ext_proc stream.
type conn interface {
	// send sends a message with its metadata_context, which may be nil.
	send(m *stream.Message, metadata map[string]map[string]any)
	// heard returns the messages received since the last call. Over reports that the picker has ended the stream.
	heard() (got []Message, over bool)
	// leave ends the stream, as Envoy does when the client leaves.
	leave()
}

// virtual drives a core/epp Machine in virtual time.
type virtual struct {
	m       *core.Machine
	now     machine.Time
	fx      core.Effects
	playing bool
	number  uint64
	page    func(address string) (string, error)
	scrapes []core.Effect // waiting for an answer
}

func (v *virtual) Input(msg core.Message) {
	v.m.Input(v.now, msg, &v.fx)
	v.play()
}

func (v *virtual) With(f func(*core.Machine, machine.Time)) { f(v.m, v.now) }

func (v *virtual) advance(now machine.Time) {
	v.now = now
	v.m.Advance(now, &v.fx)
	v.play()
}

func (v *virtual) waiting() int { return len(v.scrapes) }

func (v *virtual) answer() {
	scrapes := v.scrapes
	v.scrapes = nil
	for _, e := range scrapes {
		src := &v.m.Sources()[e.Source]
		msg := core.Scraped{Target: e.Target, Source: e.Source}
		text, err := v.page(src.Address(e.Target))
		if msg.Err = err; err == nil {
			msg.Page, msg.Err = metrics.Parse([]byte(text), src.Wants)
		}
		v.Input(msg)
	}
}

func (v *virtual) await(done func() bool) bool { return done() }

func (v *virtual) connect() conn {
	v.number++
	return &virtualConn{v: v, s: core.NewStream(v.m, v, v.number)}
}

// play carries out effects in order. Effects that they cause join the list.
func (v *virtual) play() {
	if v.playing {
		return
	}
	v.playing = true
	for i := 0; i < len(v.fx.List); i++ {
		e := v.fx.List[i]
		switch e.Kind {
		case core.Ask:
			var answers []picker.Answer
			for i := range e.Request.Needs {
				a := picker.AnswerTo(&e.Request.Needs[i])
				a.Err = errNobody
				answers = append(answers, a)
			}
			v.Input(core.Answered{Request: e.Request, Answers: answers})
		case core.Decided:
			c := e.Request.Owner.(*virtualConn)
			c.s.Decide(v.now, &c.fx)
			c.play()
		case core.Evict:
			c := e.Request.Owner.(*virtualConn)
			c.s.Evict(v.now, &c.fx)
			c.play()
		case core.Scrape:
			v.scrapes = append(v.scrapes, e)
		}
	}
	v.fx.Reset()
	v.playing = false
}

var errNobody = errors.New("nobody answers there")

type virtualConn struct {
	v   *virtual
	s   *core.Stream
	fx  machine.Effects[stream.Effect]
	got []Message
}

func (c *virtualConn) send(m *stream.Message, metadata map[string]map[string]any) {
	m.Head = m.Head.Normalize()
	if m.Kind == stream.Body && metadata != nil {
		list, hinted := metadata[picker.NamespaceSubset][picker.KeySubset].([]any)
		var addresses []string
		for _, v := range list {
			if text, ok := v.(string); ok {
				addresses = append(addresses, text)
			}
		}
		c.s.Subset(addresses, hinted)
	}
	c.s.Input(c.v.now, m, &c.fx)
	c.play()
}

func (c *virtualConn) heard() (got []Message, over bool) {
	got, c.got = c.got, nil
	r := c.s.Result()
	return got, r != stream.Running && r != stream.PassedThrough // Envoy ends a stream that was passed through
}

func (c *virtualConn) leave() { c.send(&stream.Message{Kind: stream.PeerGone}, nil) }

func (c *virtualConn) play() {
	effects := slices.Clone(c.fx.List)
	c.fx.Reset()
	for i := range effects {
		switch e := &effects[i]; e.Kind {
		case stream.Decide:
			c.s.Request().Owner = c
			c.v.Input(core.Arrive{Request: c.s.Request()})
		case stream.Fail:
		default:
			c.got = append(c.got, messageOf(e))
		}
	}
}

// messageOf converts an effect to the recordings' form.
func messageOf(e *stream.Effect) Message {
	m := Message{SetHeaders: pairs(e.Set), RemoveHeaders: slices.Sorted(slices.Values(e.Remove))}
	if len(e.Metadata) > 0 {
		text, _ := json.Marshal(e.Metadata) // only values that JSON can represent
		_ = json.Unmarshal(text, &m.Metadata)
	}
	body := string(e.Body)
	switch e.Kind {
	case stream.ContinueHeaders:
		m.Type = "request_headers"
	case stream.SendRequestHeaders:
		m.Type, m.ClearRouteCache = "request_headers", true
	case stream.SendRequestBody:
		m.Type, m.Body, m.Size, m.EOS = "request_body", &body, len(body), e.End
	case stream.PassRequestTrailers:
		m.Type = "request_trailers"
	case stream.SendResponseHeaders:
		m.Type = "response_headers"
	case stream.SendResponseBody:
		m.Type, m.Body, m.Size, m.EOS = "response_body", &body, len(body), e.End
	case stream.PassResponseTrailers:
		m.Type = "response_trailers"
	case stream.SendAnswer:
		body = string(e.Answer.Body)
		m.Type, m.Status, m.Body, m.SetHeaders = "immediate_response", e.Answer.Status, &body, pairs(e.Answer.Set)
	}
	return m
}

func pairs(set header.List) [][2]string {
	out := make([][2]string, 0, len(set))
	for _, h := range set {
		out = append(out, [2]string{h.Name, h.Value})
	}
	slices.SortFunc(out, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	return out
}
