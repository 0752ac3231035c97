package virtual

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/disagg"
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/serving"
	"github.com/windtunnel/windtunnel/core/workload"
	"github.com/windtunnel/windtunnel/scenario"
)

// passage is one request at the routing sidecar before a decode server: the
// same core/disagg as live, with model servers at hand instead of sockets.
type passage struct {
	r    *request
	at   *server // the sidecar's own decode server
	x    *disagg.Exchange
	legs map[int]*leg
	wait machine.Time // for the next try
}

// leg is a request of the sidecar's own at a model server. It travels as a
// request whose answer goes to the sidecar.
type leg struct {
	id      int
	kind    disagg.LegKind
	p       *passage
	told    bool // the status has been
	deliver bool // to the client, not to the machine
	change  *disagg.Change
	bytes   int

	hold   bool             // keep the blocks for another engine
	remote *engine.RemoteKV // fetch them from one
	held   *engine.Effect   // what is kept
	cached int              // prompt tokens that were
}

// sidecars turns the decode servers' sidecars on.
func (w *world) sidecars(s *scenario.Scenario, p *scenario.Pool) error {
	if p.Sidecar != scenario.RoutingSidecar {
		return nil
	}
	c := p.SidecarConfig()
	c.Seed, c.Recorder, c.Engines = s.Seed, w.rec, disagg.NewEngines()
	if n := p.Disaggregation.SessionCache; n > 0 {
		return fmt.Errorf("virtual: pool %s keeps sessions at its sidecars (sessionCache %d); they are played in wall time only (windtunnel run)", p.Name, n)
	}
	w.sidecar = &c
	var err error
	w.wires, err = newWires(p, len(w.servers))
	return err
}

// enter hands a request to the sidecar.
func (r *request) enter(at *server, prefillers string) {
	r.passage = &passage{r: r, at: at, legs: map[int]*leg{}}
	c := *r.w.sidecar
	c.Endpoint = at.endpoint
	r.passage.x = disagg.New(&c, disagg.Request{Number: uint64(r.number()), ID: r.ID, Attempt: 1, Method: "POST", Path: r.Path,
		Prefillers: disagg.ParseTargets(prefillers), Body: r.Body, Bytes: len(r.Body)})
}

// number is different for each request of a run.
func (r *request) number() int {
	r.w.numbered++
	return r.w.numbered
}

func (p *passage) play(effects []disagg.Effect) {
	for _, e := range append([]disagg.Effect(nil), effects...) {
		switch e := e.(type) {
		case disagg.Call:
			p.call(e.Leg)
		case disagg.Deliver:
			l := p.legs[e.Leg]
			l.deliver, l.change = true, e.Change
			if len(e.Before) > 0 {
				l.pass(200, e.Before, false)
			}
		case disagg.Answer:
			p.r.respond(e.Status, e.Body, true)
		}
	}
	if at, ok := p.x.Next(); ok && at != p.wait && !p.x.Over() {
		p.wait = at
		p.r.w.queue.Push(at, machine.ClassTimer, event{kind: retryPrefill, request: p.r})
	}
}

func (p *passage) tell(m disagg.Message) { p.play(p.x.Input(p.r.w.now, m)) }

// call begins a leg at its model server.
func (p *passage) call(d disagg.Leg) {
	w := p.r.w
	l := &leg{id: d.ID, kind: d.Kind, p: p}
	p.legs[d.ID] = l
	to := p.at
	if d.Target.Host != "" {
		to = w.byAddr[d.Target.String()]
	}
	if to == nil || d.Kind == disagg.Bootstrap {
		p.tell(disagg.Failed{Leg: d.ID, Reason: "nobody listens on " + d.Target.String(), Refused: true})
		return
	}
	body := d.Body
	if d.Original {
		body = p.r.Body
	}
	sub := &request{Request: workload.Request{ID: p.r.ID, Path: p.r.Path, Body: body}, w: w, server: to, leg: l, prompt: p.r.promptTokens(), asked: p.r.asked}
	l.read(sub, body)
	endpoint := to.endpoint
	if to == p.at { // behind the sidecar
		endpoint = strings.TrimSuffix(endpoint, ":8000") + ":8001"
	}
	sub.session = serving.New(serving.Options{Request: sub.ID, Attempt: 1, Endpoint: endpoint, Recorder: w.rec})
	p.r.subs = append(p.r.subs, sub)
	sub.bytes = len(body)
	sub.do(sub.session.Received(w.now, len(body)))
}

// read finds what concerns the engine in a leg's body.
func (l *leg) read(sub *request, body []byte) {
	if c, bad := openai.ParseChat(body); bad == nil && c.MaxTokens != nil {
		sub.asked = *c.MaxTokens
	}
	var q struct {
		KV struct {
			Decode  bool     `json:"do_remote_decode"`
			Prefill bool     `json:"do_remote_prefill"`
			Engine  string   `json:"remote_engine_id"`
			Blocks  []uint64 `json:"remote_block_ids"`
		} `json:"kv_transfer_params"`
	}
	if json.Unmarshal(body, &q) != nil {
		return // another connector's
	}
	l.hold = q.KV.Decode
	if from := sub.w.byName[q.KV.Engine]; q.KV.Prefill && from != nil && len(q.KV.Blocks) > 0 {
		l.remote = &engine.RemoteKV{From: engine.EngineID(from.index), Handle: q.KV.Blocks[0], Tokens: len(sub.prompt)}
	}
}

// respond takes a piece of the leg's answer.
func (l *leg) respond(status int, body []byte, end bool) {
	if !l.told {
		l.told = true
		kind := "text/event-stream"
		if l.kind == disagg.Prefill || status != 200 {
			kind = "application/json"
		}
		l.p.tell(disagg.Head{Leg: l.id, Status: status, ContentType: kind})
	}
	switch {
	case l.deliver:
		l.pass(status, body, end)
	case end && l.kind == disagg.Prefill && status == 200:
		l.p.tell(disagg.Whole{Leg: l.id, Body: l.reply()})
	case end:
		l.p.tell(disagg.Whole{Leg: l.id, Body: body})
	}
}

// pass hands the leg's answer on to the client.
func (l *leg) pass(status int, body []byte, end bool) {
	if l.change != nil {
		body = bytes.Clone(l.change.Write(body))
		if end {
			body = append(body, l.change.End()...)
		}
	}
	first := l.bytes == 0 && len(body) > 0
	l.bytes += len(body)
	if end {
		for _, sub := range l.p.r.subs {
			if sub.leg == l {
				l.p.r.tokens = sub.tokens
			}
		}
	}
	if first {
		l.p.tell(disagg.FirstByte{Bytes: len(body)})
	}
	if end {
		l.p.tell(disagg.Delivered{Bytes: l.bytes})
	}
	l.p.r.respond(status, body, end)
}

// reply is the prefill server's answer, as far as anybody reads it.
func (l *leg) reply() []byte {
	kv := "null"
	if l.held != nil {
		kv = fmt.Sprintf(`{"do_remote_decode":false,"do_remote_prefill":true,"remote_block_ids":[%d],"remote_engine_id":%q}`,
			l.held.Handle, l.server().name)
	}
	return fmt.Appendf(nil, `{"choices":[],"usage":{"prompt_tokens_details":{"cached_tokens":%d}},"kv_transfer_params":%s}`, l.cached, kv)
}

func (l *leg) server() *server {
	for _, sub := range l.p.r.subs {
		if sub.leg == l {
			return sub.server
		}
	}
	return l.p.at
}

// leave ends the legs of a request that nobody waits for any more.
func (p *passage) leave(reason string) {
	if !p.x.Over() {
		p.tell(disagg.Gone{Reason: reason})
	}
	for _, sub := range p.r.subs {
		sub.dropServer(reason)
	}
}
