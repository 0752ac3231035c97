package disagg

import (
	"cmp"
	"fmt"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
)

// disaggregate prefills on another server, in the connector's way.
func (x *ClientRequest) disaggregate() {
	x.mark = "disaggregated"
	k, t := x.c.connector(), x.prefill.targets[0]
	x.decided("disaggregated", t.String(), "")
	if k.RequestID {
		x.add = append(x.add, x.requestID()...)
	}
	x.source = x.sourceOf(&t)
	if k.AtOnce && t.NoURL {
		x.noServer(t.Bad)
		return
	}
	if k.Ask != nil {
		x.askEngine()
		return
	}
	if _, asked := x.body["cache_hit_threshold"]; asked && k.DecodeFirst && !x.wasEncoded {
		x.callDecode(Leg{Original: true})
		return // prefills only if the decode server's cache has too little
	}
	x.callLegs(connector.Engine{})
}

// seen returns the request as its connector sees it.
func (x *ClientRequest) seen(e connector.Engine) *connector.Request {
	t := &x.prefill.targets[0]
	return &connector.Request{Path: x.r.Path, Body: x.body, Host: t.Host, Port: t.Port, MeetingPort: x.meetingPort(),
		PeerPort: x.peerPort(t),
		Source:   x.source, Engine: e, MoRIIO: &x.c.MoRIIO, Peers: &x.r.Peers, Draw: x.draw}
}

func (x *ClientRequest) meetingPort() int {
	return cmp.Or(x.c.MeetingPort, x.c.connector().MeetingPort)
}

// callLegs sends both legs at once, or only the one to the prefill server.
func (x *ClientRequest) callLegs(e connector.Engine) {
	var legs *connector.Legs
	if together := x.c.connector().Together; together != nil {
		legs = together(x.seen(e))
	}
	switch {
	case legs == nil:
		x.callPrefill()
	case x.prefill.targets[0].NoURL:
		x.noServer(x.prefill.targets[0].Bad)
	case legs.Wait > 0:
		x.bothAwaited(legs)
	default:
		x.together(legs)
	}
}

// noServer ends a request whose header names no server, before the sidecar calls any.
func (x *ClientRequest) noServer(why string) {
	x.record(record.PrefillLegFailed, x.prefill.targets[0].String(), record.D("reason", why))
	if x.c.FallBack {
		x.fallBack(why)
		return
	}
	x.refuse(502, why)
}

// fallBack lets the decode server prefill.
func (x *ClientRequest) fallBack(why string) {
	x.prefill.targets, x.mark = nil, "fallback"
	x.decided("local", "", why)
	x.session = nil
	if x.inChunks(x.body) {
		return
	}
	if x.wasEncoded {
		x.callDecode(Leg{Body: x.body.Write(), Add: x.add})
		return
	}
	x.callDecode(Leg{Original: true})
}

// tries reports whether the decode leg only asks if the decode server's cache is sufficient.
func (x *ClientRequest) tries() bool {
	_, asked := x.body["cache_hit_threshold"]
	return asked && x.c.Sessions == nil && x.c.connector().DecodeFirst && len(x.prefill.targets) > 0 &&
		!x.prefill.done && !x.wasEncoded
}

// together calls both servers at once; they find each other by themselves. It does not wait for the prefill server's
// answer.
func (x *ClientRequest) together(legs *connector.Legs) {
	x.timing.prefillAt = x.now
	x.record(record.PrefillLegSent, x.prefill.targets[0].String(), record.D("try", 1))
	x.call(Leg{Kind: Prefill, Target: x.prefill.targets[0], Body: legs.Prefill.Write(), Set: legs.Head, Add: x.add,
		Detached: true})
	x.callDecode(Leg{Body: legs.Decode.Write(), Add: x.add})
}

// callPrefill sends the prefill leg, and waits for its answer.
func (x *ClientRequest) callPrefill() {
	t := x.prefill.targets[0]
	x.prefill.tried++
	x.timing.prefillAt = cmp.Or(x.timing.prefillAt, x.now)
	x.record(record.PrefillLegSent, t.String(), record.D("try", x.prefill.tried))
	if t.Bad != "" {
		x.record(record.PrefillLegFailed, t.String(), record.D("reason", t.Bad))
		x.prefill.tried = x.c.Retries + 1
		x.prefillFailed(failure{reason: t.Bad, bad: t.NoURL})
		return
	}
	var body object
	var set header.List
	if x.session != nil {
		body = x.session.prefill(x.r.Path, x.body)
	} else {
		body, set = x.c.connector().Prefill(x.seen(connector.Engine{}))
	}
	x.call(Leg{Kind: Prefill, Target: t, Body: body.Write(), Set: set, Add: x.add})
}

// requestID returns the id on which NIXL's two sides agree. Like the real sidecar, it adds the id to the client's own.
// In session mode, which is document 002's, it adds one only where the client sent none.
func (x *ClientRequest) requestID() header.List {
	if x.r.ID != "" && x.c.Sessions != nil {
		return nil
	}
	return header.Of(RequestIDHeader, x.uuid("request"))
}

// whole takes a leg's whole body.
func (x *ClientRequest) whole(l *leg, body []byte) {
	switch {
	case l.Kind == Prefill:
		x.prefilled(l, body)
	case x.over:
	case l.Kind == Encode:
		x.encodedOne(l, body)
	case l.Kind == Bootstrap:
		x.bootstrapped(l, body)
	case l.then != nil:
		l.then(body)
	case x.tries():
		x.threshold(l, body)
	case x.session != nil:
		x.sessionRefused(l, body)
	default:
		x.finish(l, body)
	}
}

// prefilled takes the prefill server's answer.
func (x *ClientRequest) prefilled(l *leg, body []byte) {
	good := l.status >= 200 && l.status < 300
	reply, err := jsonobject.Parse(body)
	usage := reply.Object("usage")
	if usage == nil {
		usage = reply.Object("completion_usage") // a Dynamo worker's
	}
	cached, _ := usage.Object("prompt_tokens_details").Integer("cached_tokens")
	x.record(record.PrefillLegEnded, l.Target.String(), record.D("status", l.status), record.D("cached_tokens", cached))
	x.timing.prefillEnd = x.now
	if l.Detached {
		x.prefill.done = x.prefill.done || good
		return
	}
	if x.over {
		return
	}
	if x.both != nil {
		x.bothPrefilled(good, Answer{Status: l.status, Body: body, Verbatim: l.ID},
			fmt.Sprintf("the prefiller answered %d", l.status))
		return
	}
	if !good {
		x.prefillFailed(failure{leg: l.ID, status: l.status, body: body, whole: true,
			reason: fmt.Sprintf("the prefiller answered %d", l.status)})
		return
	}
	byContent := x.c.connector().ByContent
	if err != nil && (x.session != nil || !byContent) {
		x.prefillFailed(failure{leg: l.ID, useless: jsonobject.Explain(body, err),
			reason: fmt.Sprintf("the prefiller's answer (%d) is not understood: %v", l.status, err)})
		return
	}
	x.prefill.done, x.prefill.cached = true, cached
	x.prefill.blocks = count(reply.Object("kv_transfer_params")["remote_block_ids"])
	if x.session != nil {
		x.sessionPrefilled(l, reply, body)
		return
	}
	x.prefill.strict = !byContent
	x.decodeAfter(reply)
}

// decodeAfter sends the decode leg of a prefilled prompt.
func (x *ClientRequest) decodeAfter(reply object) {
	k := x.c.connector()
	body, set := k.Decode(x.seen(connector.Engine{}), reply)
	x.body = body
	rank := 0
	if x.prefill.strict {
		var ok bool
		if rank, ok = x.rank(); !ok {
			return
		}
	}
	if k.DecodeFirst || x.prefill.strict && x.ranked() || !x.inChunks(x.body) {
		x.callDecode(Leg{Body: x.body.Write(), Set: set, Add: x.add, Rank: rank})
	}
}

// prefillFailed retries, calls the next prefiller, or gives up.
func (x *ClientRequest) prefillFailed(f failure) {
	again := !f.whole || f.status >= 500
	same := !f.whole && f.useless == "" || f.status >= 502 && f.status <= 504 || again && x.c.RetryOn5xx
	switch {
	case same && x.prefill.tried <= x.c.Retries:
		backoff := x.c.RetryBackoff
		backoff = cmp.Or(backoff, DefaultRetryBackoff)
		x.prefill.retryAt = x.now.Add(backoff)
	case again && len(x.prefill.targets) > 1:
		x.prefill.targets, x.prefill.tried = x.prefill.targets[1:], 0
		x.callPrefill()
	case again && x.c.FallBack:
		x.fallBack(f.reason)
	case f.whole:
		x.answer(Answer{Status: f.status, Body: f.body, Verbatim: f.leg}, f.reason)
	case f.bad:
		x.refuse(502, f.reason)
	case f.useless != "":
		x.refuse(400, f.useless)
	default:
		x.answer(Answer{Status: 502, Head: header.Of(ErrorHeader, header.Text(f.reason))}, "prefill failed: "+f.reason)
	}
}

// askEngine gets the prefill server's engines before either leg.
func (x *ClientRequest) askEngine() {
	t := x.prefill.targets[0]
	t.Port = x.meetingPort()
	t.TLS, t.Plain = false, true
	if t.Host != "?" {
		t.Bad = "" // the port was the mistake
	}
	x.asked = x.prefill.targets[0].String()
	var known []connector.Engine
	var ok bool
	if x.c.Engines != nil {
		x.c.locked(func() { known, ok = x.c.Engines.Get(x.asked) })
	}
	if ok {
		x.prefillAtOne(known)
		return
	}
	x.call(Leg{Kind: Bootstrap, Target: t, Method: "GET", Path: x.c.connector().Ask.Path})
}

func (x *ClientRequest) bootstrapFailed(reason string) {
	if x.c.FallBack {
		x.fallBack(reason)
		return
	}
	x.refuse(502, reason)
}

// bootstrapped takes the answer of the prefill server's bootstrap port.
func (x *ClientRequest) bootstrapped(l *leg, body []byte) {
	if l.status < 200 || l.status >= 300 {
		x.bootstrapFailed(fmt.Sprintf("bootstrap endpoint returned status %d", l.status))
		return
	}
	engines, err := x.c.connector().Ask.Read(body)
	if err != nil {
		x.bootstrapFailed(err.Error())
		return
	}
	if x.c.Engines != nil {
		x.c.locked(func() { x.c.Engines.Put(x.asked, engines, 0) })
	}
	x.prefillAtOne(engines)
}

// prefillAtOne continues with one of the ranks, drawn at random for each request.
func (x *ClientRequest) prefillAtOne(engines []connector.Engine) {
	d := x.draw("rank")
	x.callLegs(engines[d.Uint64()%uint64(len(engines))])
}

// count returns the number of ids in a list, or lists, of block ids.
func count(ids any) int {
	list, ok := ids.([]any)
	if !ok {
		return 0
	}
	n := 0
	for _, v := range list {
		if _, nested := v.([]any); nested {
			n += count(v)
		} else {
			n++
		}
	}
	return n
}
