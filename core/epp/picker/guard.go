package picker

import (
	"errors"
	"fmt"

	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// A plug-in that panics fails the request that it panicked over, by name, and
// nothing else: every call of a plug-in is one of these, or inside Pick, which
// has a guard of its own.

// Guard calls a plug-in by f. Its panic is the error.
func (p *Picker) Guard(pl Plugin, f func()) (err *apierror.Error) {
	defer func() {
		if v := recover(); v != nil {
			err = p.opt.panicked(naming(pl), v)
		}
	}()
	f()
	return nil
}

// naming returns which plug-in it was, nil being the picker itself.
func naming(pl Plugin) string {
	if pl == nil {
		return "the picker"
	}
	return fmt.Sprintf("plugin %s (%s)", pl.Name(), pl.Type())
}

// panicked is called while the panic's stack still stands. Who lacks something of
// a described request is no panic to be told of.
func (o *Options) panicked(who string, v any) *apierror.Error {
	if u, ok := v.(*parse.Unknown); ok {
		return &apierror.Error{Status: 500, Message: who + " " + u.Error(), Err: u}
	}
	err := &apierror.Error{Status: 500, Message: fmt.Sprintf("%s panicked: %v", who, v)}
	if o.Panicked != nil {
		o.Panicked(err)
	}
	return err
}

// first keeps the first of several errors.
func first(err *apierror.Error, next *apierror.Error) *apierror.Error {
	if err != nil {
		return err
	}
	return next
}

// Extract has an extractor read a page into metrics, which stay as they were
// where it cannot.
func (p *Picker) Extract(x MetricsExtractor, page metrics.Page, labels map[string]string, into *Metrics) (err error) {
	values := *into
	if panicked := p.Guard(x, func() { err = x.Extract(page, labels, &values) }); panicked != nil {
		return panicked
	}
	if err != nil {
		return fmt.Errorf("%s: %w", x.Name(), err)
	}
	*into = values
	return nil
}

// gone returns an observer that an endpoint left. What it did not forget because
// it panicked is at worst remembered for too long.
func (p *Picker) gone(o EndpointObserver) func(slot int, forget bool) {
	return func(slot int, forget bool) { _ = p.Guard(o, func() { o.EndpointGone(slot, forget) }) }
}

// parse has a parser, which may be a plug-in's, read a body.
func (p *Picker) parse(ps parse.Parser, path string, body []byte, d *described.Body, room *parse.Room) (b *parse.Body,
	bad *apierror.Error) {
	defer func() {
		if v := recover(); v != nil {
			b, bad = nil, p.opt.panicked("parser "+ps.Type(), v)
		}
	}()
	var err error
	if d != nil {
		b, err = parse.Describe(ps, path, d, room)
	} else {
		b, err = ps.Parse(path, body)
	}
	if err != nil {
		return nil, &apierror.Error{Status: 400, Message: err.Error()}
	}
	return b, nil
}

// create has a factory make a plug-in.
func (b *Builder) create(f Factory, name string, params Params) (p Plugin, err error) {
	defer func() {
		if v := recover(); v != nil {
			p, err = nil, errors.New(b.opt.panicked("its factory", v).Message)
		}
	}()
	return f(b, name, params)
}
