package picker

import (
	"errors"
	"fmt"

	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// A plug-in that panics fails only the request at which it panicked, and is named in the error. Every call of a plug-in
// goes through one of these functions, or through Pick, which has a guard of its own.

// Guard calls f on behalf of a plug-in and returns its panic as an error. A nil plug-in stands for the picker itself.
func (p *Picker) Guard(pl Plugin, f func()) (err *apierror.Error) {
	defer func() {
		if v := recover(); v != nil {
			err = p.opt.panicked(naming(pl), v)
		}
	}()
	f()
	return nil
}

// naming returns a plug-in's name for errors; nil is the picker itself.
func naming(pl Plugin) string {
	if pl == nil {
		return "the picker"
	}
	return fmt.Sprintf("plugin %s (%s)", pl.Name(), pl.Type())
}

// panicked makes an error of a panic whose stack still exists. It does not report a *parse.Unknown, which is the lack
// of something in a described request.
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

// Extract runs an extractor on a page. On an error into stays unchanged.
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

// gone returns an observer that informs a plug-in of an endpoint that left. If the plug-in panics, it keeps state about
// the endpoint for too long at worst.
func (p *Picker) gone(o EndpointObserver) func(slot int, forget bool) {
	return func(slot int, forget bool) { _ = p.Guard(o, func() { o.EndpointGone(slot, forget) }) }
}

// parse runs a parser, perhaps a plug-in's, on a body.
func (p *Picker) parse(ps parse.Parser, path string, body []byte, d *described.Body,
	memory *parse.Memory) (b *parse.Body, bad *apierror.Error) {
	defer func() {
		if v := recover(); v != nil {
			b, bad = nil, p.opt.panicked("parser "+ps.Type(), v)
		}
	}()
	var err error
	if d != nil {
		b, err = parse.Describe(ps, path, d, memory)
	} else {
		b, err = ps.Parse(path, body)
	}
	if err != nil {
		return nil, &apierror.Error{Status: 400, Message: err.Error()}
	}
	return b, nil
}

// create runs a plug-in's factory.
func (b *Builder) create(f Factory, name string, params Params) (p Plugin, err error) {
	defer func() {
		if v := recover(); v != nil {
			p, err = nil, errors.New(b.opt.panicked("its factory", v).Message)
		}
	}()
	return f(b, name, params)
}
