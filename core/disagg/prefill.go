package disagg

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/link"
)

// disaggregate prefills elsewhere, by the connector's way.
func (x *ClientRequest) disaggregate() {
	x.mark = "disaggregated"
	t := x.targets[0]
	x.decided("disaggregated", t.String(), "")
	switch x.c.connector() {
	case SGLang, Mooncake, Offloading:
		if t.NoURL {
			x.noServer(t.Bad)
			return
		}
	case SharedStorage, LMCache:
	default: // as NIXL
		x.add = append(x.add, x.requestID()...)
		x.source = x.sourceOf(&t)
		if x.c.MoRIIO.Write && x.c.MoRIIO.Parallel {
			if t.NoURL {
				x.noServer(t.Bad)
				return
			}
			x.moriioParallel()
			return
		}
	}
	switch c := x.c; c.connector() {
	case SGLang:
		room := int64(x.number("bootstrap room") >> 1)
		body := sglangBody(x.body, t.Host, or(c.SGLangPort, link.BootstrapPort), room).write()
		x.together(body, body, nil)
	case Mooncake:
		x.askEngine()
	case Offloading:
		id := x.uuid("transfer")
		x.together(offloadingPrefill(x.r.Path, x.body, id, x.sourceOf(&t)).write(), offloadingDecode(x.body, t, x.peerPort(&t), id).write(), nil)
	case SharedStorage:
		if _, ok := x.body["cache_hit_threshold"]; ok && !x.wasEncoded {
			x.callDecode(Leg{Original: true})
			return // prefill only if the decode server's cache has too little
		}
		x.callPrefill()
	default:
		x.callPrefill()
	}
}

func (x *ClientRequest) number(purpose string) uint64 {
	d := x.draw(purpose)
	return d.Uint64()
}

// noServer is the end of a request whose header names no server, where that is
// known before anybody is called.
func (x *ClientRequest) noServer(why string) {
	x.record(flow.PrefillLegFailed, x.targets[0].String(), flow.D("reason", why))
	if x.c.FallBack {
		x.fallBack(why)
		return
	}
	x.refuse(502, why)
}

// fallBack lets the decode server prefill.
func (x *ClientRequest) fallBack(why string) {
	x.targets, x.mark = nil, "fallback"
	x.decided("local", "", why)
	x.session = nil
	if x.inChunks(x.body) {
		return
	}
	if x.wasEncoded {
		x.callDecode(Leg{Body: x.body.write(), Add: x.add})
		return
	}
	x.callDecode(Leg{Original: true})
}

// tries tells whether the decode leg is only asked whether its cache suffices.
func (x *ClientRequest) tries() bool {
	_, asked := x.body["cache_hit_threshold"]
	return asked && x.c.Sessions == nil && x.c.connector() == SharedStorage && len(x.targets) > 0 && !x.remote && !x.wasEncoded
}

// together calls both servers at once: they find each other by themselves. The
// prefill server's answer is not waited for.
func (x *ClientRequest) together(prefill, decode []byte, set header.List) {
	x.prefillAt = x.now
	x.record(flow.PrefillLegSent, x.targets[0].String(), flow.D("try", 1))
	x.call(Leg{Kind: Prefill, Target: x.targets[0], Body: prefill, Set: set, Add: x.add, Detached: true})
	x.callDecode(Leg{Body: decode, Add: x.add})
}

// callPrefill sends the prefill leg, and waits for its answer.
func (x *ClientRequest) callPrefill() {
	t := x.targets[0]
	x.tried++
	if x.prefillAt == 0 {
		x.prefillAt = x.now
	}
	x.record(flow.PrefillLegSent, t.String(), flow.D("try", x.tried))
	if t.Bad != "" {
		x.record(flow.PrefillLegFailed, t.String(), flow.D("reason", t.Bad))
		x.tried = x.c.Retries + 1
		x.prefillFailed(failure{reason: t.Bad, bad: t.NoURL})
		return
	}
	var body object
	set := x.rankHeader(x.rankOfRequest())
	switch x.c.connector() {
	case SharedStorage:
		body = sharedStoragePrefill(x.r.Path, x.body)
	case LMCache:
		body = lmcachePrefill(x.r.Path, x.body)
	default:
		var kv object
		if x.c.MoRIIO.Write {
			kv = x.moriioPrefill()
		}
		body = nixlPrefill(x.r.Path, x.body, kv, x.source)
	}
	if x.session != nil {
		body = x.session.prefill(x.r.Path, x.body)
	}
	x.call(Leg{Kind: Prefill, Target: t, Body: body.write(), Set: set, Add: x.add})
}

// requestID is the id that NIXL's two sides agree on. As with the real sidecar
// it is put beside the client's own; in session mode, which is document 002's,
// only where there is none.
func (x *ClientRequest) requestID() header.List {
	if x.r.ID != "" && x.c.Sessions != nil {
		return nil
	}
	return header.Of(RequestIDHeader, x.uuid("request"))
}

// whole is a leg's whole body.
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

// prefilled is the prefill server's answer.
func (x *ClientRequest) prefilled(l *leg, body []byte) {
	good := l.status >= 200 && l.status < 300
	reply, err := parseObject(body)
	usage := reply.object("usage")
	cached, _ := usage.object("prompt_tokens_details").integer("cached_tokens")
	x.record(flow.PrefillLegEnded, l.Target.String(), flow.D("status", l.status), flow.D("cached_tokens", cached))
	x.prefillEnd = x.now
	if l.Detached {
		x.remote = x.remote || good
		return
	}
	if x.over {
		return
	}
	if x.both != nil {
		x.bothPrefilled(good, Answer{Status: l.status, Body: body, Verbatim: l.ID}, fmt.Sprintf("the prefiller answered %d", l.status))
		return
	}
	if !good {
		x.prefillFailed(failure{leg: l.ID, status: l.status, body: body, whole: true, reason: fmt.Sprintf("the prefiller answered %d", l.status)})
		return
	}
	connector := x.c.connector()
	byContent := x.session == nil && (connector == SharedStorage || connector == LMCache)
	if err != nil && !byContent {
		x.prefillFailed(failure{leg: l.ID, useless: true, reason: fmt.Sprintf("the prefiller's answer (%d) is not understood: %v", l.status, err)})
		return
	}
	x.remote, x.cached = true, cached
	x.blocks = count(reply.object("kv_transfer_params")["remote_block_ids"])
	switch {
	case x.session != nil:
		x.sessionPrefilled(l, reply, body)
		return
	case connector == SharedStorage:
		x.body = sharedStorageDecode(x.body)
	case connector == LMCache:
	default:
		x.strict = true
	}
	x.decodeAfter(reply)
}

// decodeAfter sends the decode leg of a prompt that is prefilled.
func (x *ClientRequest) decodeAfter(reply object) {
	var set header.List
	if x.strict {
		if x.c.MoRIIO.Write {
			set = x.rankHeader(x.moriioDecode(reply.object("kv_transfer_params")))
		}
		x.body = x.body.with(object{"kv_transfer_params": reply["kv_transfer_params"]})
		if _, given := x.body["sampling_params"]; given && x.r.Path == generatePath && x.body.object("sampling_params") == nil {
			x.body = x.body.with(object{"sampling_params": absent})
		}
	}
	rank := 0
	if x.strict {
		var ok bool
		if rank, ok = x.rank(); !ok {
			return
		}
	}
	switch {
	case (x.strict || x.c.connector() == LMCache) && !(x.strict && x.ranked()) && x.inChunks(x.body):
	default:
		x.callDecode(Leg{Body: x.body.write(), Set: set, Add: x.add, Rank: rank})
	}
}

// prefillFailed tries again, or the next prefiller, or gives up.
func (x *ClientRequest) prefillFailed(f failure) {
	x.lastBad = &f
	again := !f.whole || f.status >= 500
	same := !f.whole || f.status >= 502 && f.status <= 504 || again && x.c.RetryOn5xx
	switch {
	case same && x.tried <= x.c.Retries:
		backoff := x.c.RetryBackoff
		if backoff == 0 {
			backoff = DefaultRetryBackoff
		}
		x.retryAt = x.now.Add(backoff)
	case again && len(x.targets) > 1:
		x.targets, x.tried = x.targets[1:], 0
		x.callPrefill()
	case again && x.c.FallBack:
		x.fallBack(f.reason)
	case f.whole:
		x.answer(Answer{Status: f.status, Body: f.body, Verbatim: f.leg}, f.reason)
	case f.bad:
		x.refuse(502, f.reason)
	case f.useless:
		x.refuse(502, "prefill failed: "+f.reason)
	default:
		x.answer(Answer{Status: 502, Head: header.Of(ErrorHeader, plainText(f.reason))}, "prefill failed: "+f.reason)
	}
}

// askEngine finds out mooncake's engines before either leg.
func (x *ClientRequest) askEngine() {
	t := x.targets[0]
	t.Port = or(x.c.MooncakePort, link.BootstrapPort)
	t.TLS, t.Plain = false, true
	if t.Host != "?" {
		t.Bad = "" // it was the port
	}
	var known []Engine
	var ok bool
	if x.c.Engines != nil {
		x.c.locked(func() { known, ok = x.c.Engines.get(x.targets[0].String()) })
	}
	if ok {
		x.mooncake(known)
		return
	}
	x.call(Leg{Kind: Bootstrap, Target: t, Method: "GET", Path: "/query"})
}

func (x *ClientRequest) bootstrapFailed(reason string) {
	if x.c.FallBack {
		x.fallBack(reason)
		return
	}
	x.refuse(502, reason)
}

// bootstrapped reads {"0":{"engine_id":…}}, one for each data-parallel rank.
func (x *ClientRequest) bootstrapped(l *leg, body []byte) {
	if l.status < 200 || l.status >= 300 {
		x.bootstrapFailed(fmt.Sprintf("bootstrap endpoint returned status %d", l.status))
		return
	}
	var ranks map[string]map[string]any
	if err := json.Unmarshal(body, &ranks); err != nil {
		x.bootstrapFailed("failed to parse bootstrap response: " + err.Error())
		return
	}
	var engines []Engine
	for rank, v := range ranks {
		if id, ok := v["engine_id"].(string); ok {
			engines = append(engines, Engine{rank, id})
		}
	}
	slices.SortFunc(engines, func(a, b Engine) int { return strings.Compare(a.Rank, b.Rank) })
	if len(engines) == 0 {
		x.bootstrapFailed("engine_id not found in bootstrap response")
		return
	}
	if x.c.Engines != nil {
		x.c.locked(func() { x.c.Engines.put(x.targets[0].String(), engines...) })
	}
	x.mooncake(engines)
}

// mooncake sends both legs to one of the ranks, another one each time.
func (x *ClientRequest) mooncake(engines []Engine) {
	e := engines[x.number("rank")%uint64(len(engines))]
	transfer := "xfer-" + x.uuid("transfer")
	x.together(mooncakePrefill(x.r.Path, x.body, transfer).write(),
		mooncakeDecode(x.body, x.targets[0], or(x.c.MooncakePort, link.BootstrapPort), e.ID, transfer).write(),
		header.Of(RankHeader, plainText(e.Rank)))
}

// count is the number of ids in a list, or lists, of block ids.
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
