package inputlog

import (
	"encoding/json"
	"errors"
	"strconv"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Options choose the parts of a request that a log has.
type Options struct {
	// Bodies adds requests' bodies and token ids.
	Bodies bool
	// Cookies are the cookies that plug-ins read, and Secrets headers that may carry credentials. The log has digests
	// of both.
	Cookies, Secrets []string
}

// Log writes the inputs and effects of one Machine. It is an epp.Log.
type Log struct {
	// Out takes whole lines. It must not keep them.
	Out func(lines []byte)

	Options
	h     Header
	m     *epp.Machine
	buf   []byte
	pages map[pageKey]*lastPage
}

// New makes a log of a machine. Begin starts it, in the Machine's turn.
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

// Start writes the picker's header and its state: from here on the log can be played.
func (l *Log) Start() { l.out(l.Snapshot()(l.buf[:0])) }

// Snapshot copies the state with which the log begins, or restarts. The function that it returns appends the lines with
// that state, which must precede all that Out takes from now on. It reads nothing that changes, and may take long.
func (l *Log) Snapshot() (lines func(b []byte) []byte) {
	l.pages = map[pageKey]*lastPage{}
	state := l.m.Save(l.content)
	l.m.SetLog(l)
	return func(b []byte) []byte {
		b = appendJSON(append(b, '{'), "log", &l.h)
		b = append(b, '}', '\n', '{')
		b = object(b, "snapshot")
		b = appendInt(b, "picker", l.h.Picker)
		b = appendJSON(b, "state", state)
		return append(b, '}', '}', '\n')
	}
}

// flight is a request under way in a snapshot.
type flight struct {
	Request  *request  `json:"request"`
	Answered []answer  `json:"answered"`
	Response *response `json:"response"`
}

func (l *Log) content(r *epp.Request) []byte {
	b := object([]byte{'{'}, "request")
	b = append(l.appendRequest(b, r.Request, !r.Placed()), '}')
	if !r.Placed() && len(r.Answers) > 0 {
		b = l.appendAnswers(b, r.Answers)
	}
	if r.Seen() {
		b = appendResponse(field(b, "response"), r.Response)
	}
	return append(b, '}')
}

// read reads a flight.
func (k *played) read(text []byte) (c epp.Content, err error) {
	var x flight
	if err = json.Unmarshal(text, &x); err != nil {
		return c, err
	}
	if x.Request == nil {
		return c, errors.New("the snapshot has nothing about it")
	}
	if c.Request, err = x.Request.request(k.m.Picker()); err != nil {
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

func (l *Log) out(b []byte) {
	l.buf = b
	l.Out(b)
	if cap(l.buf) > 1<<20 {
		l.buf = nil
	}
}

func (l *Log) start(kind string, at machine.Time) []byte {
	b := append(l.buf[:0], `{"`...)
	b = append(append(b, kind...), `":{`...)
	b = appendInt(b, "picker", l.h.Picker)
	return strconv.AppendInt(field(b, "at"), int64(at), 10)
}

// Input implements epp.Log.
func (l *Log) Input(now machine.Time, msg epp.Message) {
	b := l.start("input", now)
	of := func(r *epp.Request) { b = strconv.AppendUint(field(b, "request"), r.Serial, 10) }
	none := func(name string) { b = append(object(b, name), '}') }
	switch x := msg.(type) {
	case epp.Arrive:
		of(x.Request)
		if b = field(b, "arrive"); x.Note != nil {
			b = append(b, x.Note...)
		} else {
			b = l.AppendRequest(b, x.Request.Request)
		}
		x.Note = nil
	case epp.Answered:
		of(x.Request)
		b = l.appendAnswers(b, x.Answers)
	case epp.Leave:
		of(x.Request)
		none("leave")
	case epp.Headers:
		of(x.Request)
		b = appendResponse(field(b, "headers"), x.Response)
	case epp.Piece:
		of(x.Request)
		b = append(l.appendRead(object(b, "piece"), x.Request), '}')
	case epp.Done:
		of(x.Request)
		b = object(b, "done")
		if x.Response != nil {
			b = append(l.appendRead(object(b, "read"), x.Request), '}')
		}
		b = appendTrue(b, "told", x.ErrSent)
		b = append(b, '}')
	case epp.Endpoints:
		b = appendJSON(b, "endpoints", append([]*picker.Endpoint{}, x.List...))
	case epp.Objects:
		b = appendJSON(b, "objects",
			&selection{x.Objects, x.Priorities, x.KeepEndpoints, append([]*picker.Endpoint{}, x.Endpoints...),
				x.Announced})
	case epp.Scraped:
		b = l.appendScraped(b, &x)
	case epp.KVEvents:
		b = l.appendKVEvents(b, &x)
	case epp.KVLost:
		b = appendJSON(b, "kvLost", &x)
	case epp.LoseIndexes:
		none("loseIndexes")
	case epp.Shutdown:
		none("shutdown")
	}
	l.out(append(b, '}', '}', '\n'))
}

// appendRead writes the parts of a response that were read: its headers, unless they entered before, and the progress
// of its body.
func (l *Log) appendRead(b []byte, r *epp.Request) []byte {
	if !r.Seen() {
		b = appendResponse(field(b, "response"), r.Response)
	}
	return appendProgress(b, &r.Response.Progress)
}

// Effect implements epp.Log.
func (l *Log) Effect(e *epp.Effect) {
	b := l.start("effect", e.At)
	if e.Request != nil {
		b = strconv.AppendUint(field(b, "request"), e.Request.Serial, 10)
	}
	b = appendEffect(b, e)
	l.out(append(b, '}', '}', '\n'))
}
