package disagg

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// both is a request with two concurrent legs.
type both struct {
	prefill, decode int
	until           machine.Time
	prefilled       bool
	head            bool    // the decode server has answered
	failed          *Failed // the failure of the decode leg
}

// bothAwaited sends both legs. The client gets nothing before the prefill has succeeded.
func (x *ClientRequest) bothAwaited(legs *connector.Legs) {
	rank, ok := x.rank()
	if !ok {
		return
	}
	t := x.prefill.targets[0]
	x.timing.prefillAt = x.now
	x.record(record.PrefillLegSent, t.String(), record.D("try", 1))
	b := &both{until: x.now.Add(legs.Wait)}
	b.prefill = x.call(Leg{Kind: Prefill, Target: t, Body: legs.Prefill.Write(), Set: legs.Head, Concurrent: true})
	b.decode = x.callDecode(Leg{Body: legs.Decode.Write(), Set: legs.Head, Concurrent: true, Rank: rank})
	x.both = b
}

// bothPrefilled takes the prefill server's answer or the failure of its leg.
func (x *ClientRequest) bothPrefilled(good bool, answer Answer, why string) {
	b := x.both
	if b.prefilled = good; !good {
		x.do(Drop{b.decode})
		x.answer(answer, why)
		return
	}
	x.prefill.done = true
	x.deliverBoth()
}

// deliverBoth passes on the decode server's answer once the prefill has succeeded.
func (x *ClientRequest) deliverBoth() {
	b := x.both
	switch {
	case !b.prefilled:
	case b.failed != nil:
		x.decodeFailed(*b.failed)
	case b.head:
		x.deliver(x.leg(b.decode), nil, nil)
	}
}

// bothTimedOut gives up both legs.
func (x *ClientRequest) bothTimedOut() {
	x.do(Drop{x.both.prefill})
	x.do(Drop{x.both.decode})
	why := "decode aborted: prefill did not complete within the MoRI-IO parallel-dispatch KV-wait timeout"
	x.record(record.PrefillLegFailed, x.prefill.targets[0].String(), record.D("reason", "it did not answer in time"))
	x.answer(Answer{Status: 504, Head: header.Of("Content-Type", "application/json"),
		Body: object{"error": why}.Write()}, why)
}
