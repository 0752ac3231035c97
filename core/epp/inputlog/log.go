package inputlog

import (
	"encoding/json"
	"errors"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
)

// Options say what is written of a request.
type Options struct {
	// Bodies adds requests' bodies and token ids.
	Bodies bool
	// Cookies are those that plug-ins read, and Secrets headers which may carry
	// credentials; of these digests are written.
	Cookies, Secrets []string
}

// Log writes the inputs and effects of one Machine. It is an epp.Log.
type Log struct {
	// Out takes whole lines. They are its own only until it returns.
	Out func(lines []byte)

	Options
	h     Header
	m     *epp.Machine
	lines encoder
	pages map[pageKey]*lastPage
}

// New makes a log of a machine, which it is not told of yet: Begin does it, in
// the Machine's turn.
func New(m *epp.Machine, h Header, out func(lines []byte)) *Log {
	l := &Log{Out: out, h: h, m: m}
	l.h.Format = Format
	l.Bodies = h.Bodies
	for _, pl := range m.Picker().Plugins() {
		if c, ok := pl.(picker.CookieReader); ok && c.ReadsCookie() != "" {
			l.Cookies = append(l.Cookies, c.ReadsCookie())
		}
		if c, ok := pl.(picker.SecretReader); ok {
			l.Secrets = append(l.Secrets, c.ReadsSecrets()...)
		}
	}
	return l
}

// Begin writes what the picker is made of and its state: from here on the log
// can be played.
func (l *Log) Begin() { l.Out(l.Snapshot()(nil)) }

// Snapshot copies the state with which the log begins, or begins anew. The
// function that it returns appends the lines that say so, which come before all
// that Out takes from now on. It needs nothing that changes, and may take long.
func (l *Log) Snapshot() (lines func(b []byte) []byte) {
	l.pages = map[pageKey]*lastPage{}
	state := l.m.Save(l.content)
	l.m.SetLog(l)
	return func(b []byte) []byte {
		b = append(b, encoded(&line{Log: &l.h})...)
		return append(b, encoded(&line{Snapshot: &snapshot{l.h.Picker, state}})...)
	}
}

// flight is what a snapshot says of a request that is under way.
type flight struct {
	Request  *request  `json:"request"`
	Answered []answer  `json:"answered,omitempty"`
	Response *response `json:"response,omitempty"`
}

func (l *Log) content(r *epp.Request) []byte {
	x := flight{Request: l.requestOf(r.Request, !r.Placed())}
	if !r.Placed() {
		x.Answered = l.answersOf(r.Answers)
	}
	if r.Seen() {
		x.Response = responseOf(r.Response)
	}
	return encoded(&x)
}

// read reads it.
func (k *played) read(text []byte) (c epp.Content, err error) {
	var x flight
	if err = json.Unmarshal(text, &x); err != nil {
		return c, err
	}
	if x.Request == nil {
		return c, errors.New("nothing is said of it")
	}
	if c.Request, err = x.Request.again(k.m.Picker()); err != nil {
		return c, err
	}
	for i := range x.Answered {
		c.Answers = append(c.Answers, x.Answered[i].answer())
	}
	k.m.Picker().Read(c.Request, c.Answers)
	if x.Response != nil {
		c.Response = func(d *picker.Decision) *picker.Response { return x.Response.response(k.m.Picker(), d) }
	}
	return c, nil
}

func (l *Log) out(x *line) { l.Out(l.lines.encode(x)) }

// Input implements epp.Log.
func (l *Log) Input(now machine.Time, msg epp.Message) {
	x := &input{stamp: stamp{Picker: l.h.Picker, At: now}}
	there := &struct{}{}
	switch m := msg.(type) {
	case epp.Arrive:
		x.Request, x.Arrive = m.Request.Serial, &arrival{note: m.Note}
		if m.Note == nil {
			x.Arrive.request = *l.requestOf(m.Request.Request, true)
		}
		m.Note = nil
	case epp.Answered:
		x.Request, x.Answered = m.Request.Serial, l.answersOf(m.Answers)
	case epp.Leave:
		x.Request, x.Leave = m.Request.Serial, there
	case epp.Headers:
		x.Request, x.Headers = m.Request.Serial, responseOf(m.Response)
	case epp.Piece:
		x.Request, x.Piece = m.Request.Serial, progressOf(m.Request)
	case epp.Done:
		x.Request, x.Done = m.Request.Serial, &done{Told: m.Told}
		if m.Response != nil {
			x.Done.Read = progressOf(m.Request)
		}
	case epp.Endpoints:
		x.Endpoints = endpointsOf(m.List)
	case epp.Objects:
		x.Objects = &selection{m.Objects, m.Priorities, m.KeepEndpoints, endpointsOf(m.Endpoints), m.Announced}
	case epp.Scraped:
		x.Scraped = l.scraped(&m)
	case epp.KVEvents:
		x.KVEvents = l.kvEventsOf(&m)
	case epp.KVLost:
		x.KVLost = &kvLost{m.Index, m.Pod}
	case epp.LoseIndexes:
		x.LoseIndexes = there
	case epp.Shutdown:
		x.Shutdown = there
	}
	l.out(&line{Input: x})
}

// Effect implements epp.Log.
func (l *Log) Effect(e *epp.Effect) {
	l.out(&line{Effect: effectOf(stamp{Picker: l.h.Picker, At: e.At}, e)})
}
