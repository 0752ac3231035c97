package disagg

import (
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
)

// A request may be described (core/wire/described). Its legs are then described, too, and the sidecar reads and writes
// only the fields outside the prompt.

// spell switches the request to bytes where the sidecar does more with its prompt than pass it on.
func (x *ClientRequest) spell() {
	d := x.r.Described
	if d == nil || x.c.Sessions == nil && x.c.ChunkTokens <= 0 && x.c.PromptThreshold <= 0 &&
		len(x.r.Encoders) == 0 && !mayName(d.Before) &&
		!mayName(d.After) {
		return
	}
	x.r.Body, x.r.Described = d.Bytes(), nil
}

// parse reads the request's body. The body of a described request has a sample in place of the prompt and may only be
// read.
func (x *ClientRequest) parse() (object, error) {
	d := x.r.Described
	if d == nil {
		return jsonobject.Parse(x.r.Body)
	}
	if o, known := d.Sidecar.(object); known {
		return o, nil
	}
	o, err := jsonobject.Parse(d.Sample())
	if err == nil {
		d.Sidecar = o
	}
	return o, err
}

// describe gives a leg of a described request its prompt.
func (l *Leg) describe(d *described.Body) {
	switch {
	case d == nil || l.Kind != Prefill && l.Kind != Decode:
	case l.Original:
		l.Described = d
	default:
		if f := d.Fields.With(l.Body); f != nil {
			l.Described, l.Body = d.With(f), nil
			return
		}
		// Another text in the body equals the sample.
		o, err := jsonobject.Parse(l.Body)
		was, bad := jsonobject.Parse(d.Bytes())
		if err != nil || bad != nil {
			panic("disagg: a leg's body cannot be read again") // windtunnel wrote both
		}
		for _, key := range []string{"messages", "prompt"} {
			if v, has := was[key]; has {
				o[key] = v
			}
		}
		l.Body = o.Write()
	}
}

// PassesAnswer reports whether the client gets a leg's successful answer as Deliver describes it, while the sidecar
// reads nothing else in that answer.
func (x *ClientRequest) PassesAnswer(id int) bool {
	l := x.leg(id)
	return l != nil && l.Kind == Decode && l.then == nil && x.session == nil && x.both == nil && !x.tries()
}

// Piece changes a piece of a described answer. It returns false where the client gets nothing yet.
func (c *Change) Piece(p *described.Piece, end bool) bool {
	if c.set && p.Has {
		p.Usage.CachedTokens, p.Usage.Details = c.cached, true
	}
	return end || !c.document
}
