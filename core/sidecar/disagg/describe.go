package disagg

import (
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
)

// A request may be described (core/wire/described): then the legs are, and only what is
// no part of the prompt is read and written.

// spell has the request go on in bytes where more is done with its prompt than
// passing it on.
func (x *ClientRequest) spell() {
	d := x.r.Described
	if d == nil || x.c.Sessions == nil && x.c.ChunkTokens <= 0 && x.c.PromptThreshold <= 0 &&
		len(x.r.Encoders) == 0 && !mayName(d.Before) &&
		!mayName(d.After) {
		return
	}
	x.r.Body, x.r.Described = d.Bytes(), nil
}

// parse reads the request's body. That of one that is described has a sample for
// the prompt, and is to be read only.
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
		// Something else in it looks like the sample.
		o, err := jsonobject.Parse(l.Body)
		was, bad := jsonobject.Parse(d.Bytes())
		if err != nil || bad != nil {
			panic("disagg: a leg's body cannot be read again") // both were written by us
		}
		for _, key := range []string{"messages", "prompt"} {
			if v, has := was[key]; has {
				o[key] = v
			}
		}
		l.Body = o.Write()
	}
}

// PassesAnswer says that of a leg's answer, once it is a success, the client gets
// what Deliver says, and that nothing else is read in it.
func (x *ClientRequest) PassesAnswer(id int) bool {
	l := x.leg(id)
	return l != nil && l.Kind == Decode && l.then == nil && x.session == nil && x.both == nil && !x.tries()
}

// Piece changes a piece of an answer that is described. It is false where nothing
// goes to the client yet.
func (c *Change) Piece(p *described.Piece, end bool) bool {
	if c.set && p.Has {
		p.Usage.CachedTokens, p.Usage.Details = c.cached, true
	}
	return end || !c.document
}
