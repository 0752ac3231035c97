package epp

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// respond shows the plug-ins a part of a response.
func (m *Machine) respond(r *Request, show func(*picker.Response, machine.Time)) {
	if r.Response == nil {
		return
	}
	r.seen = r.Response
	show(r.Response, m.now)
	if m.log != nil && r.Response.Modified() {
		m.emit(Effect{Kind: Hooked, Request: r})
	}
	r.Err = cmp.Or(r.Err, r.Response.Err)
}

// explained returns the response headers that explain the decision: the selected pods where the documents' headers are
// on, and all where the configuration or the request asks for them.
func (m *Machine) explained(d *picker.Decision) header.List {
	if d == nil || d.Err != nil || len(d.Targets) == 0 {
		return nil
	}
	var out header.List
	add := func(name, value string) { out = append(out, header.Header{Name: name, Value: value}) }
	asked := m.asked(d)
	if !asked && !m.c.DocumentHeaders {
		return nil
	}
	add(picker.HeaderSelectedPod, d.Targets[0].Endpoint.Name)
	if p := d.Prefiller(); p != nil {
		add(picker.HeaderPrefillPod, p.Name)
	}
	if id := traceID(d.Request.Headers); id != "" {
		add(picker.HeaderTraceID, id)
	}
	if !asked {
		return out
	}
	add(picker.HeaderDecodePod, d.Targets[0].Endpoint.Name)
	if r := d.PrimaryProfile(); r.Ok() {
		for _, pl := range m.p.Plugins() {
			if x, ok := pl.(PrefixProducer); ok {
				var matched, block int
				if m.p.Guard(x, func() { matched, _, block = x.MatchOf(d, &d.View.States[r.Picked[0]]) }) != nil {
					break
				}
				add(picker.HeaderCacheHit, strconv.FormatBool(matched > 0))
				add(picker.HeaderCachePrefix, strconv.Itoa(matched*block))
				break
			}
		}
		if len(r.Left) <= maxScores || wants(d) {
			add(picker.HeaderScores, d.ScoreList())
		}
	}
	var filters, scorers machine.Time
	for _, s := range d.Spans {
		switch s.Point {
		case "Filter":
			filters += s.Took
		case "Scorer":
			scorers += s.Took
		}
	}
	add(picker.HeaderSchedulingTime, milliseconds(d.Took))
	add(picker.HeaderFilterTime, milliseconds(filters))
	add(picker.HeaderScorerTime, milliseconds(scorers))
	return out
}

// traceID returns a request's trace id: from its traceparent (W3C Trace Context), or the digits of a request id that is
// a UUID, else the request id.
func traceID(h header.List) string {
	if parts := strings.Split(h.Get("traceparent"), "-"); len(parts) >= 4 && len(parts[1]) == 32 {
		return parts[1]
	}
	id := h.Get(picker.HeaderRequestID)
	if digits := strings.ReplaceAll(id, "-", ""); len(digits) == 32 {
		return digits
	}
	return id
}

// maxScores bounds the scores in a response whose request did not ask for them, since headers have size limits.
const maxScores = 64

// wants reports whether the request itself asks for the reasons.
func wants(d *picker.Decision) bool {
	ask := d.Request.Headers.Get(picker.HeaderExplain)
	return ask != "" && ask != "false" && ask != "0"
}

// asked reports whether a decided request's response must explain the decision.
func (m *Machine) asked(d *picker.Decision) bool {
	return m.c.ExplainHeaders || wants(d)
}

func milliseconds(t machine.Time) string { return strconv.FormatFloat(t.Seconds()*1e3, 'f', 3, 64) }
