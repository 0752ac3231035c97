package disagg

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
)

// start decides how the request is served.
func (x *ClientRequest) start() {
	c := x.c
	if !c.Generates(x.r.Method, x.r.Path) {
		x.passThrough("no request that generates tokens")
		return
	}
	if c.Frontend != nil {
		x.front()
		return
	}
	x.prefill.targets = slices.Clone(x.r.Prefillers)
	if len(x.prefill.targets) > 1 && c.Sample {
		x.shuffle()
	}
	if !x.allowed() || !x.scrubbed() {
		return
	}
	if len(x.prefill.targets) == 0 && len(x.r.Encoders) == 0 && x.ranked() {
		if rank, ok := x.rank(); ok {
			x.mark = "local"
			x.decided("local", "", RankHostHeader+" names its rank")
			x.callDecode(Leg{Original: true, Rank: rank})
		}
		return
	}
	if !c.parses(&x.r) {
		x.passThrough("no prefiller is named")
		return
	}
	body, err := x.parse()
	if err != nil && !x.nullBody() {
		before := "invalid JSON: "
		if k := c.connector(); k.AtOnce && len(x.prefill.targets) > 0 && len(x.r.Encoders) == 0 {
			before = k.BadBody
		}
		x.refuse(400, before+jsonobject.Explain(x.r.Body, err))
		return
	}
	x.body = body
	if c.Sessions != nil {
		x.startSession()
		return
	}
	if len(x.r.Encoders) > 0 && x.encode() {
		return
	}
	if n := promptTokens(body); c.PromptThreshold > 0 && n <= c.PromptThreshold && len(x.prefill.targets) > 0 {
		x.prefill.targets = nil
		x.passThrough(fmt.Sprintf("its prompt of about %d tokens is not above the threshold", n))
		return
	}
	x.serve()
}

// scrubbed removes the fields that only the sidecar may set from the body. It returns false where it refuses the
// request.
func (x *ClientRequest) scrubbed() bool {
	if x.spell(); x.r.Described != nil {
		return true // there is nothing to remove
	}
	clean, found, err := Scrub(x.r.Body)
	if err != nil {
		x.refuse(400, "invalid JSON: "+jsonobject.Explain(x.r.Body, err))
		return false
	}
	if len(found) > 0 {
		x.blocked++
		x.record(record.PrefillerBlocked, "", record.D("fields", found))
		x.r.Body, x.rewritten = clean, true
	}
	return true
}

// nullBody reports whether the body is null where the real sidecar treats null as a body without fields. Elsewhere null
// crashes the real sidecar.
func (x *ClientRequest) nullBody() bool {
	return string(bytes.TrimSpace(x.r.Body)) == "null" && x.c.connector().AtOnce && len(x.prefill.targets) > 0 &&
		len(x.r.Encoders) == 0
}

// serve prefills on another server if the request names one.
func (x *ClientRequest) serve() {
	if len(x.prefill.targets) == 0 {
		x.local()
		return
	}
	x.disaggregate()
}

// allowed refuses a request whose prefiller is outside the pool. It drops all further prefillers, encode servers and
// sources of cached blocks that are outside the pool, so that the sidecar calls none of them.
func (x *ClientRequest) allowed() bool {
	if x.c.Encoder == "" || x.c.Sessions != nil {
		x.r.Encoders = nil
	}
	if !x.c.pulls() {
		x.r.Source = nil
	}
	if x.c.Allow == nil {
		return true
	}
	if len(x.prefill.targets) > 0 && !x.inPool(&x.prefill.targets[0]) {
		x.mark = "blocked"
		x.answer(Answer{Status: 403, Body: []byte(Blocked),
			Head: header.Of("Content-Type", "text/plain; charset=utf-8")}, Blocked)
		return false
	}
	kept := x.prefill.targets[:min(1, len(x.prefill.targets))]
	for i := 1; i < len(x.prefill.targets); i++ {
		if x.inPool(&x.prefill.targets[i]) {
			kept = append(kept, x.prefill.targets[i])
		}
	}
	x.prefill.targets = kept
	x.r.Encoders = slices.DeleteFunc(slices.Clone(x.r.Encoders), func(t Target) bool { return !x.inPool(&t) })
	if x.r.Source != nil && !x.inPool(x.r.Source) {
		x.r.Source = nil
	}
	return true
}

// inPool reports whether the sidecar may call a server, and records each one that it may not. It may not call a server
// without a known address.
func (x *ClientRequest) inPool(t *Target) bool {
	ok, allowed := false, 0
	x.c.locked(func() { ok, allowed = t.Bad == "" && x.c.Allow.Allows(t), x.c.Allow.Size() })
	if !ok {
		x.blocked++
		x.record(record.PrefillerBlocked, t.String(), record.D("address", t.Addr.String()),
			record.D("allowed", allowed))
	}
	return ok
}

// Blocked returns the number of servers outside the pool that the request named.
func (x *ClientRequest) Blocked() int { return x.blocked }

func (x *ClientRequest) shuffle() {
	d := x.draw("prefiller")
	for i := len(x.prefill.targets) - 1; i > 0; i-- {
		j := d.Intn(i + 1)
		x.prefill.targets[i], x.prefill.targets[j] = x.prefill.targets[j], x.prefill.targets[i]
	}
}

// passThrough passes the request to the decode server as it is.
func (x *ClientRequest) passThrough(why string) {
	x.mark = "local"
	if x.c.Generates(x.r.Method, x.r.Path) {
		x.decided("local", "", why)
	}
	x.callDecode(Leg{Original: true})
}

// local sends the whole request to the decode server, with the body that this needs.
func (x *ClientRequest) local() {
	x.mark = "local"
	x.decided("local", "", "no prefiller is named")
	if x.wasEncoded {
		if rank, ok := x.rank(); ok {
			x.callDecode(Leg{Body: x.body.Write(), Add: x.add, Rank: rank})
		}
		return
	}
	l := Leg{Original: true}
	if s := x.sourceOf(&Target{Host: x.c.PodIP, Port: x.c.Port}); s != nil {
		x.body = x.body.With(object{"kv_transfer_params": object{"remote_kv_source": s}})
		l = Leg{Body: x.body.Write()}
	}
	if !x.inChunks(x.body) {
		x.callDecode(l)
	}
}
