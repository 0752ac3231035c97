package sidecar

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/live/serve"
)

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// deliver passes a leg's answer on to the client as it arrives.
func (e *clientRequest) deliver(d disagg.Deliver) {
	resp := e.answers[d.Leg]
	defer e.closeAnswer(d.Leg)
	change := d.Change
	if resp.Header.Get("Content-Encoding") != "" {
		change = nil // compressed data cannot be changed
	}
	streams := resp.ContentLength < 0
	e.head(resp.Header, streams)
	for _, h := range d.Head {
		e.w.Header()[h.Name] = []string{h.Value}
	}
	if change != nil && !streams {
		e.document(resp, d.Before, change)
		return
	}
	e.w.WriteHeader(resp.StatusCode)
	e.begun = true
	flusher, _ := e.w.(http.Flusher)
	if streams {
		flusher.Flush() // the client may wait for the headers alone
	}
	send := func(data []byte) bool {
		if change != nil && len(data) > 0 {
			data = change.Write(data)
		}
		return e.send(data, streams, flusher)
	}
	if !send(d.Before) {
		return
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		n, err := resp.Body.Read(*buf)
		if n > 0 && !send((*buf)[:n]) {
			return
		}
		switch {
		case errors.Is(err, io.EOF):
			if change != nil && !e.send(change.End(), streams, flusher) {
				return
			}
			e.trailers(resp.Trailer, streams)
			e.whole(resp.StatusCode)
			return
		case err != nil && e.r.Context().Err() != nil:
			e.gone("the client left")
			return
		case err != nil:
			e.k.s.metrics.connectionErrors.Inc()
			e.gone("the decode server's answer broke off: " + err.Error())
			return
		}
	}
}

// send writes to the client and reports whether the client is still there.
func (e *clientRequest) send(data []byte, flush bool, flusher http.Flusher) bool {
	if len(data) == 0 {
		return true
	}
	if _, err := e.w.Write(data); err != nil {
		e.gone("the client left: " + err.Error())
		return false
	}
	if flush {
		flusher.Flush()
	}
	if e.wrote == 0 {
		e.input(disagg.FirstByte{Bytes: len(data)})
	}
	e.wrote += len(data)
	return true
}

// document reads an answer whole, changes it, and sends it with its length.
func (e *clientRequest) document(resp *http.Response, before []byte, change disagg.Changer) {
	body, err := readAll(resp.Body)
	if err != nil {
		if e.r.Context().Err() != nil {
			e.gone("the client left")
			return
		}
		e.k.s.metrics.connectionErrors.Inc()
		clear(e.w.Header())
		refused(e.w, err)
		e.input(disagg.Gone{Reason: "the decode server's answer broke off: " + err.Error()})
		return
	}
	out := append([]byte(nil), change.Write(append(before, body...))...)
	out = append(out, change.End()...)
	e.w.Header().Set("Content-Length", strconv.Itoa(len(out)))
	e.w.WriteHeader(resp.StatusCode)
	e.begun = true
	if e.send(out, false, nil) {
		e.whole(resp.StatusCode)
	}
}

// say sends a piece of an answer that the sidecar generates itself, without delay.
func (e *clientRequest) say(s disagg.Say) {
	flusher, _ := e.w.(http.Flusher)
	if !e.begun {
		e.begun = true
		for _, h := range s.Head {
			e.w.Header()[h.Name] = []string{h.Value}
		}
		e.times(true)
		e.w.WriteHeader(http.StatusOK)
	}
	if e.send(s.Data, true, flusher) && s.End {
		e.trailers(nil, true)
		e.whole(http.StatusOK)
	}
}

func (e *clientRequest) whole(status int) {
	e.input(disagg.Delivered{Bytes: e.wrote})
	e.ok.Store(!disagg.EndsLegs(status))
}

// answer ends the request with a complete answer.
func (e *clientRequest) answer(a disagg.Answer) {
	if resp := e.answers[a.Verbatim]; resp != nil {
		e.head(resp.Header, false)
		delete(e.w.Header(), "Content-Encoding")
	} else {
		e.times(false)
	}
	e.begun = true
	write(e.w, a.Status, a.Head, a.Body)
	e.wrote += len(a.Body)
	e.ok.Store(!disagg.EndsLegs(a.Status))
}

// head copies a leg's headers and adds document 003's timings.
func (e *clientRequest) head(from http.Header, streams bool) {
	removeHop(from)
	maps.Copy(e.w.Header(), from)
	e.times(streams)
}

// times sets document 003's response headers. Times that are not known when the headers leave go into the trailers.
func (e *clientRequest) times(streams bool) {
	o := &e.k.s.o
	if o.PlainHeaders {
		return
	}
	var t disagg.Times
	var prefiller string
	e.drive.With(func(now machine.Time, _ *disagg.Effects) { t, prefiller = e.x.Times(now), e.x.Prefiller() })
	h := e.w.Header()
	set := func(name string, v machine.Time) {
		if v > 0 {
			h[name] = []string{serve.Millis(v)}
		}
	}
	set("X-Prefill-Time-Ms", t.Prefill)
	set(disagg.TransferHeader, t.Transfer)
	if !streams {
		e.split("", t)
	}
	if prefiller != "" {
		h["X-Prefill-Pod"] = []string{prefiller}
	}
	if o.PodName != "" {
		h["X-Decode-Pod"] = []string{o.PodName}
	}
}

// trailers sets the trailers of a streamed answer.
func (e *clientRequest) trailers(from http.Header, streams bool) {
	h := e.w.Header()
	for name, values := range from {
		h[http.TrailerPrefix+name] = values
	}
	if !streams || e.k.s.o.PlainHeaders || !serve.TakesTrailers(e.r) {
		return
	}
	var t disagg.Times
	e.drive.With(func(now machine.Time, _ *disagg.Effects) { t = e.x.Times(now) })
	e.split(http.TrailerPrefix, t)
}

// split sets the timings that are known at an answer's end, under names with this prefix. Without a prefill leg, the
// decode server prefills too, so its own X-Decode-Time-Ms stays.
func (e *clientRequest) split(prefix string, t disagg.Times) {
	h := e.w.Header()
	if decode := prefix + "X-Decode-Time-Ms"; t.Decode > 0 && (t.Prefill > 0 || len(h[decode]) == 0) {
		h[decode] = []string{serve.Millis(t.Decode)}
	}
	h[prefix+"X-Total-Time-Ms"] = []string{serve.Millis(t.Total)}
	if tokens := h[prefix+"X-Tokens-Generated"]; len(tokens) == 1 && t.Ahead > 0 {
		if n, err := strconv.Atoi(tokens[0]); err == nil {
			tokens[0] = strconv.Itoa(n + t.Ahead)
		}
	}
}
