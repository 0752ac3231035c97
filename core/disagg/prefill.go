package disagg

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/windtunnel/windtunnel/core/flow"
)

// disaggregate prefills elsewhere, by the connector's way.
func (x *Exchange) disaggregate() {
	x.mark = "disaggregated"
	t := x.targets[0]
	x.decided("disaggregated", t.String(), "")
	switch c := x.c; c.connector() {
	case SGLang:
		room := int64(x.number("bootstrap room") >> 1)
		body := sglangBody(x.body, t.Host, or(c.SGLangPort, DefaultBootstrapPort), room).write()
		x.together(body, body, nil)
	case Mooncake:
		x.askEngine()
	case Offloading:
		id := x.uuid("transfer")
		x.together(offloadingPrefill(x.r.Path, x.body, id, x.source()).write(),
			offloadingDecode(x.body, t, or(c.P2PPort, DefaultP2PPort), id).write(), nil)
	case SharedStorage:
		if _, ok := x.body["cache_hit_threshold"]; ok {
			x.callDecode(Leg{Original: true, Remove: []string{PrefillerHeader}})
			return // prefill only if the decode server's cache has too little
		}
		x.callPrefill()
	default:
		x.callPrefill()
	}
}

func (x *Exchange) number(purpose string) uint64 {
	d := x.draw(purpose)
	return d.Uint64()
}

func (x *Exchange) source() object {
	if x.r.Source == nil || !x.c.pulls() {
		return nil
	}
	return sourceFields(x.r.Source, or(x.c.P2PPort, DefaultP2PPort), x.uuid("kv source"))
}

// tries tells whether the decode leg is only asked whether its cache suffices.
func (x *Exchange) tries() bool {
	return x.c.Sessions == nil && x.c.connector() == SharedStorage && len(x.targets) > 0 && !x.remote && x.body["cache_hit_threshold"] != nil
}

// together calls both servers at once: they find each other by themselves. The
// prefill server's answer is not waited for.
func (x *Exchange) together(prefill, decode []byte, set []Header) {
	remove := []string{PrefillerHeader, SourceHeader}
	x.prefillAt = x.now
	x.record(flow.PrefillLegSent, x.targets[0].String(), flow.D("try", 1))
	if t := x.targets[0]; t.Bad != "" {
		x.record(flow.PrefillLegFailed, t.String(), flow.D("reason", t.Bad))
	} else {
		x.call(Leg{Kind: Prefill, Target: t, Body: prefill, Set: set, Remove: remove, Detached: true})
	}
	x.callDecode(Leg{Body: decode, Remove: remove})
}

// callPrefill sends the prefill leg, and waits for its answer.
func (x *Exchange) callPrefill() {
	t := x.targets[0]
	x.tried++
	if x.prefillAt == 0 {
		x.prefillAt = x.now
	}
	x.record(flow.PrefillLegSent, t.String(), flow.D("try", x.tried))
	if t.Bad != "" {
		x.record(flow.PrefillLegFailed, t.String(), flow.D("reason", t.Bad))
		x.tried = x.c.Retries + 1
		x.prefillFailed(failure{reason: t.Bad})
		return
	}
	var body object
	switch x.c.connector() {
	case SharedStorage:
		body = sharedStoragePrefill(x.r.Path, x.body)
	case LMCache:
		body = lmcachePrefill(x.r.Path, x.body)
	default:
		body = nixlPrefill(x.r.Path, x.body, x.source())
	}
	if x.session != nil {
		body = x.session.prefill(x.r.Path, x.body)
	}
	x.call(Leg{Kind: Prefill, Target: t, Body: body.write(), Set: x.requestID(), Remove: []string{PrefillerHeader, SourceHeader}})
}

// requestID gives both legs one id where the client sent none: NIXL's two
// sides must agree on it.
func (x *Exchange) requestID() []Header {
	if x.r.ID != "" || x.c.connector() != NIXLv2 && x.c.connector() != NIXLv1 {
		return nil
	}
	return []Header{{RequestIDHeader, x.uuid("request")}}
}

// whole is a leg's whole body.
func (x *Exchange) whole(l *leg, body []byte) {
	switch {
	case l.Kind == Prefill:
		x.prefilled(l, body)
	case x.over:
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
func (x *Exchange) prefilled(l *leg, body []byte) {
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
	if !good {
		x.prefillFailed(failure{leg: l.ID, status: l.status, body: body, whole: true, reason: fmt.Sprintf("the prefiller answered %d", l.status)})
		return
	}
	connector := x.c.connector()
	byContent := x.session == nil && (connector == SharedStorage || connector == LMCache)
	if err != nil && !byContent {
		x.prefillFailed(failure{leg: l.ID, reason: fmt.Sprintf("the prefiller's answer (%d) is not understood: %v", l.status, err)})
		return
	}
	x.remote, x.cached = true, cached
	x.blocks = count(reply.object("kv_transfer_params")["remote_block_ids"])
	set, remove := x.requestID(), []string{PrefillerHeader, SourceHeader}
	switch {
	case x.session != nil:
		x.sessionPrefilled(l, reply, body)
		return
	case connector == SharedStorage:
		x.body = sharedStorageDecode(x.body)
	case connector == LMCache:
	default:
		x.strict = true
		x.body = x.body.with(object{"kv_transfer_params": reply["kv_transfer_params"]})
	}
	if x.chunks != nil {
		x.chunks.body, x.chunks.set, x.chunks.remove = x.body, set, remove
		x.nextChunk()
		return
	}
	x.callDecode(Leg{Body: x.body.write(), Set: set, Remove: remove})
}

// prefillFailed tries again, or the next prefiller, or gives up.
func (x *Exchange) prefillFailed(f failure) {
	x.lastBad = &f
	again := !f.whole || f.status >= 500
	switch {
	case again && x.tried <= x.c.Retries:
		backoff := x.c.RetryBackoff
		if backoff == 0 {
			backoff = DefaultRetryBackoff
		}
		x.retryAt = x.now.Add(backoff)
	case again && len(x.targets) > 1:
		x.targets, x.tried = x.targets[1:], 0
		x.callPrefill()
	case again && x.c.FallBack:
		x.targets, x.mark = nil, "fallback"
		x.decided("local", "", f.reason)
		x.session = nil
		if x.chunks != nil {
			x.nextChunk()
			return
		}
		x.callDecode(Leg{Original: true, Remove: []string{PrefillerHeader, SourceHeader}})
	case f.whole:
		x.answer(Answer{Status: f.status, Body: f.body, Verbatim: f.leg}, f.reason)
	default:
		x.refuse(502, "prefill failed: "+f.reason)
	}
}

// askEngine finds out mooncake's engine id before either leg.
func (x *Exchange) askEngine() {
	t := x.targets[0]
	t.Port = or(x.c.MooncakePort, DefaultBootstrapPort)
	t.TLS = false
	var known Engine
	var ok bool
	if x.c.Engines != nil {
		x.c.locked(func() { known, ok = x.c.Engines.get(t.String()) })
	}
	switch {
	case ok:
		x.mooncake(known)
	case t.Bad != "":
		x.bootstrapFailed("failed to query bootstrap endpoint: " + t.Bad)
	default:
		x.call(Leg{Kind: Bootstrap, Target: t, Method: "GET", Path: "/query"})
	}
}

func (x *Exchange) bootstrapFailed(reason string) {
	if x.c.FallBack {
		x.mark = "fallback"
		x.decided("local", "", reason)
		x.callDecode(Leg{Original: true, Remove: []string{PrefillerHeader, SourceHeader}})
		return
	}
	x.refuse(502, reason)
}

// bootstrapped reads {"0":{"engine_id":…}}: the lowest rank is taken.
func (x *Exchange) bootstrapped(l *leg, body []byte) {
	if l.status < 200 || l.status >= 300 {
		x.bootstrapFailed(fmt.Sprintf("bootstrap endpoint answered %d", l.status))
		return
	}
	var ranks map[string]struct {
		ID string `json:"engine_id"`
	}
	if err := json.Unmarshal(body, &ranks); err != nil {
		x.bootstrapFailed("failed to parse bootstrap response: " + err.Error())
		return
	}
	e := Engine{Rank: -1}
	for key, v := range ranks {
		if n, err := strconv.Atoi(key); err == nil && n >= 0 && v.ID != "" && (e.Rank < 0 || n < e.Rank) {
			e = Engine{v.ID, n}
		}
	}
	if e.Rank < 0 {
		x.bootstrapFailed("engine_id not found in bootstrap response")
		return
	}
	if x.c.Engines != nil {
		x.c.locked(func() { x.c.Engines.put(l.Target.String(), e) })
	}
	x.mooncake(e)
}

func (x *Exchange) mooncake(e Engine) {
	transfer := "xfer-" + x.uuid("transfer")
	x.together(mooncakePrefill(x.r.Path, x.body, transfer).write(),
		mooncakeDecode(x.body, x.targets[0], or(x.c.MooncakePort, DefaultBootstrapPort), e.ID, transfer).write(),
		[]Header{{RankHeader, strconv.Itoa(e.Rank)}})
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
