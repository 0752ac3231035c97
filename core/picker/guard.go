package picker

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/apierror"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/metrics"
)

// A plug-in that panics fails the request that it panicked over, by name, and
// nothing else: every call of a plug-in is one of these, or inside Pick, which
// has a guard of its own.

// caught turns a plug-in's panic into an error; defer it.
func caught(p Plugin, err **apierror.Error) {
	if v := recover(); v != nil {
		*err = panicked(p, v)
	}
}

func panicked(p Plugin, v any) *apierror.Error {
	name := "the picker"
	if p != nil {
		name = fmt.Sprintf("plugin %s (%s)", p.Name(), p.Type())
	}
	return &apierror.Error{Status: 500, Message: fmt.Sprintf("%s panicked: %v", name, v)}
}

// first keeps the first of several errors.
func first(err *apierror.Error, next *apierror.Error) *apierror.Error {
	if err != nil {
		return err
	}
	return next
}

func requestHeader(h HeaderProcessor, r *Request) (err *apierror.Error) {
	defer caught(h, &err)
	h.RequestHeader(r)
	return nil
}

func needs(a Asker, now machine.Time, r *Request, v *View) (list []Need, err *apierror.Error) {
	defer caught(a, &err)
	return a.Needs(now, r, v), nil
}

func commit(c Committer, now machine.Time, d *Decision) (err *apierror.Error) {
	defer caught(c, &err)
	c.Commit(now, d)
	return nil
}

func release(r Releaser, now machine.Time, d *Decision) (err *apierror.Error) {
	defer caught(r, &err)
	r.Release(now, d)
	return nil
}

func responseHeader(h ResponseHeader, now machine.Time, r *Response) (err *apierror.Error) {
	defer caught(h, &err)
	h.ResponseHeader(now, r)
	return nil
}

func responseBody(h ResponseBody, now machine.Time, r *Response) (err *apierror.Error) {
	defer caught(h, &err)
	h.ResponseBody(now, r)
	return nil
}

// Extract has an extractor read a page into figures, which stay as they were
// where it cannot.
func Extract(x MetricsExtractor, page metrics.Page, labels map[string]string, into *Metrics) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(x, v)
		}
	}()
	figures := *into
	if err := x.Extract(page, labels, &figures); err != nil {
		return fmt.Errorf("%s: %w", x.Name(), err)
	}
	*into = figures
	return nil
}

// gone tells an observer that an endpoint left. What it did not forget because
// it panicked is at worst remembered for too long.
func gone(o EndpointObserver) func(slot int, forget bool) {
	return func(slot int, forget bool) {
		var err *apierror.Error
		defer caught(o, &err)
		o.EndpointGone(slot, forget)
	}
}
