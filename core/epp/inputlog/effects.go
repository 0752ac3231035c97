package inputlog

import (
	"math"
	"strconv"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// appendEffect writes an effect. Values for people are written as they are. Values that are only compared (all
// endpoints' scores, the endpoints that a filter left) become a hash.
func appendEffect(b []byte, e *epp.Effect) []byte {
	switch e.Kind {
	case epp.Ask:
		b = append(field(b, "asked"), '[')
		for i := range e.Request.Needs {
			n := &e.Request.Needs[i]
			b = openai.AppendString(comma(b), n.Plugin+"/"+n.Key)
		}
		return append(b, ']')
	case epp.Decided:
		b = appendDecided(object(b, "decided"), e.Request)
	case epp.Failed:
		b = appendError(object(b, "failed"), "error", e.Request.Err)
	case epp.Hooked:
		b = object(b, "hooked")
		b = appendPairs(b, "headers", e.Request.Response.HookHeaders())
		if m := e.Request.Response.Metadata(); m != nil {
			b = appendJSON(b, "metadata", m)
		}
	case epp.Unread:
		b = object(b, "unread")
		b = appendText(b, "plugin", e.Plugin.Name())
		b = appendText(b, "error", e.Err.Error())
	case epp.Mismatch:
		b = object(b, "mismatch")
		b = appendInt(b, "tokens", e.Count)
	case epp.Left, epp.Revoked:
		b = append(field(b, [...]string{"left", "revoked"}[e.Kind-epp.Left]), '{')
		b = appendInt(b, "kind", int(e.Flow.Kind))
		b = appendText(b, "outcome", e.Flow.Outcome.String())
		b = appendInt(b, "priority", e.Flow.Priority)
		b = appendText(b, "fairness", e.Flow.FairnessID)
		b = appendInt(b, "bytes", e.Flow.Bytes)
		b = appendInt(b, "wait", e.Flow.Wait)
		b = appendTrue(b, "poolEmpty", e.Flow.PoolEmpty)
	default:
		b = object(b, plainEffects[e.Kind])
	}
	if e.Target != nil {
		b = appendText(b, "endpoint", e.Target.ID())
		b = appendInt(b, "source", e.Source)
	}
	return append(b, '}')
}

// plainEffects are the names of effects that have no fields of their own.
var plainEffects = [...]string{epp.Evict: "evicted", epp.Departed: "departed", epp.Forgotten: "forgotten",
	epp.Dial: "dial", epp.Hangup: "hangup", epp.Queued: "queued"}

func appendDecided(b []byte, r *epp.Request) []byte {
	if r.Err != nil {
		b = appendError(b, "error", r.Err)
	}
	d := r.Decision
	if d == nil {
		return b
	}
	if r.Err == nil {
		b = appendText(b, "to", d.Destination())
	}
	b = appendText(b, "model", d.Request.TargetModel)
	if len(d.Screened) > 0 {
		b = appendRemoved(b, "screened", d.Screened)
	}
	if len(d.Profiles) > 0 {
		b = object(b, "profiles")
		for i := range d.Profiles {
			p := &d.Profiles[i]
			b = appendProfile(object(b, p.Name), d, p)
			b = append(b, '}')
		}
		b = append(b, '}')
	}
	if p := d.PrimaryProfile(); p != nil {
		b = appendText(b, "primary", p.Name)
	}
	b = appendPairs(b, "set", d.Set)
	if len(d.Drop) > 0 {
		b = appendTexts(b, "drop", d.Drop)
	}
	return b
}

func appendProfile(b []byte, d *picker.Decision, p *picker.ProfileResult) []byte {
	if len(p.Removed) > 0 { // with picker.Options.Detail
		b = appendRemoved(b, "removed", p.Removed)
	}
	b = appendInt(b, "left", len(p.Left))
	b = appendHash(b, "of", hashOf(p.Left, func(i int32) uint64 { return uint64(i) }))
	if len(p.Raw) > 0 {
		b = object(b, "scores")
		for i, raw := range p.Raw {
			b = appendHash(b, p.Scorers[i].Scorer.Name(), hashOf(raw, math.Float64bits))
		}
		b = append(b, '}')
	}
	if len(p.Picked) == 0 {
		return b
	}
	if p.Picker != nil {
		b = appendText(b, "by", p.Picker.Name())
	}
	b = append(field(b, "picked"), '[')
	for _, n := range p.Picked {
		b = openai.AppendString(comma(b), d.View.States[n].ID())
	}
	b = append(b, ']')
	b = append(field(b, "total"), '[') // of each picked endpoint
	for _, n := range p.Picked {
		b = appendFloat(comma(b), p.Total(n))
	}
	return append(b, ']')
}

// appendRemoved writes a hash of the endpoints that each plug-in removed.
func appendRemoved(b []byte, name string, list []picker.Removal) []byte {
	b = object(b, name)
	for i := range list {
		b = appendHash(b, list[i].By.Name(), hashOf(list[i].Removed, func(i int32) uint64 { return uint64(i) }))
	}
	return append(b, '}')
}

func hashOf[T any](list []T, number func(T) uint64) uint64 {
	h := uint64(len(list))
	for _, v := range list {
		h = parse.Mix(h, number(v))
	}
	return h
}

func appendHash(b []byte, name string, v uint64) []byte {
	b = append(field(b, name), '"')
	b = strconv.AppendUint(b, v, 16)
	return append(b, '"')
}
