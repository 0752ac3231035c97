package epp

import (
	"context"
	"fmt"
	"testing"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// picking is a picker over so many endpoints; options may be changed.
func picking(t *testing.T, text string, endpoints int, change ...func(o *PickingOptions)) *Picking {
	t.Helper()
	began := time.Now()
	o := PickingOptions{Config: core.Config{Stream: stream.Config{Errors: stream.EPPErrors}},
		Now: func() machine.Time { return machine.Time(time.Since(began)) }}
	for _, f := range change {
		f(&o)
	}
	if o.Picker == nil {
		o.Picker = pickerOf(t, text, picker.Options{Detail: true})
	}
	k, err := NewPicking(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	var list []*picker.Endpoint
	for i := range endpoints {
		list = append(list, picker.NewEndpoint("default", fmt.Sprintf("w%d", i), fmt.Sprintf("127.0.0.%d", i+1), "8000",
			nil))
	}
	k.SetEndpoints(list)
	return k
}

func pickerOf(t *testing.T, text string, o picker.Options) *picker.Picker {
	t.Helper()
	cfg, err := config.Read("epp.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := picker.New(cfg, plugins.Builtin(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// waiting gives the endpoints queues of these lengths.
func (k *Picking) waiting(lengths ...int64) {
	k.With(func(m *core.Machine, now machine.Time) {
		for i, n := range lengths {
			m.Picker().Pool().Update(now, i, picker.Metrics{Waiting: n})
		}
	})
}

// asked is one request at a picker, without a wire.
type asked struct {
	k    *Picking
	done func()
	s    *core.Stream
	fx   machine.Effects[stream.Effect]
	// The outcome.
	endpoint string
	body     string // that is sent on
	set      header.List
	metadata stream.Metadata
	answer   *stream.Answer
}

// chat is a request with this id.
func chat(id int) header.List { return chatHead(fmt.Sprint(id)) }

func chatHead(id string, more ...string) header.List {
	return append(header.Of(":method", "POST", ":path", "/v1/chat/completions", "x-request-id", id),
		header.Of(more...)...)
}

const hello = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`

// ask has a picker decide about a request.
func (k *Picking) testAsk(ctx context.Context, head header.List, body string) *asked {
	a := &asked{k: k, s: core.NewStream(k.m, k, k.number.Add(1))}
	a.send(stream.Message{Kind: stream.Headers, Head: head})
	a.send(stream.Message{Kind: stream.Body, Body: []byte(body), End: true})
	for _, e := range a.fx.List {
		if e.Kind == stream.Decide {
			a.fx.Reset()
			k.decide(func() context.Context { return ctx }, a.s.Request())
			a.s.Decide(k.o.Now(), &a.fx)
			break
		}
	}
	for _, e := range a.fx.List {
		switch e.Kind {
		case stream.SendAnswer:
			a.answer = &e.Answer
		case stream.SendRequestBody:
			a.body += string(e.Body)
		case stream.SendRequestHeaders:
			a.endpoint, a.metadata, a.set = e.Set.Get(picker.HeaderDestination), e.Metadata, e.Set
		}
	}
	k.measure(a.s.Request())
	return a
}

// testAsk has the current configuration decide.
func (r *Generations) testAsk(ctx context.Context, head header.List, body string) *asked {
	k, done := r.Take()
	a := k.testAsk(ctx, head, body)
	a.done = done
	return a
}

func (a *asked) send(m stream.Message) { a.s.Input(a.k.o.Now(), &m, &a.fx) }

// respond sends a response's head and, where it is not empty, a whole body. It
// returns the headers that are set.
func (a *asked) respond(head header.List, body string) header.List {
	a.fx.Reset()
	a.send(stream.Message{Kind: stream.ResponseHeaders, Head: head})
	set := a.fx.List[0].Set
	if body != "" {
		a.send(stream.Message{Kind: stream.ResponseBody, Body: []byte(body), End: true})
	}
	return set
}

// leave ends the request, if it has not ended, and the stream.
func (a *asked) leave() {
	a.send(stream.Message{Kind: stream.PeerGone})
	if a.done != nil {
		a.done()
	}
}
