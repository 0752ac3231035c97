package inputlog

import (
	"bytes"
	"fmt"
	"math"

	"github.com/windtunnel/windtunnel/core/apierror"
	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/parse"
)

// effect is what came of messages. What a person would want to read is
// there as it is; of what is only compared (all endpoints' scores, those that a
// filter left) a hash.
type effect struct {
	stamp
	kind string
	says any // an outcome, or the questions that were asked
}

// MarshalJSON implements json.Marshaler: the field behind the stamp has the kind as its name.
func (x *effect) MarshalJSON() ([]byte, error) {
	at, says := bytes.TrimSpace(encoded(&x.stamp)), bytes.TrimSpace(encoded(x.says))
	return fmt.Appendf(nil, "%s,%q:%s}", at[:len(at)-1], x.kind, says), nil
}

// effectNames are the kinds that a log has.
var effectNames = map[epp.Kind]string{epp.Ask: "asked", epp.Decided: "decided", epp.Evict: "evicted",
	epp.Failed: "failed", epp.Hooked: "hooked", epp.Departed: "departed", epp.Unread: "unread",
	epp.Forgotten: "forgotten", epp.Dial: "dial", epp.Hangup: "hangup", epp.Mismatch: "mismatch", epp.Queued: "queued",
	epp.Left: "left", epp.Revoked: "revoked"}

// outcome is what an effect says. Which fields there are depends on its kind.
type outcome struct {
	Plugin string `json:"plugin,omitempty"`
	Error  any    `json:"error,omitempty"` // a failure, or a plug-in's text
	*decision
	Headers  pairs                     `json:"headers,omitempty"`
	Metadata map[string]map[string]any `json:"metadata,omitzero"`
	Tokens   int                       `json:"tokens,omitempty"`
	*place
	Endpoint string `json:"endpoint,omitempty"`
	Source   int    `json:"source,omitempty"`
}

type failure struct {
	Status  int    `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// place is a request's place in a queue.
type place struct {
	Kind      int          `json:"kind,omitempty"`
	Outcome   string       `json:"outcome,omitempty"`
	Priority  int          `json:"priority,omitempty"`
	Fairness  string       `json:"fairness,omitempty"`
	Bytes     int64        `json:"bytes,omitempty"`
	Wait      machine.Time `json:"wait,omitempty"`
	PoolEmpty bool         `json:"poolEmpty,omitempty"`
}

type decision struct {
	To       string          `json:"to,omitempty"`
	Model    string          `json:"model,omitempty"`
	Screened named[hash]     `json:"screened,omitempty"`
	Profiles named[*profile] `json:"profiles,omitempty"`
	Primary  string          `json:"primary,omitempty"`
	Set      pairs           `json:"set,omitempty"`
	Drop     []string        `json:"drop,omitempty"`
}

type profile struct {
	Removed named[hash] `json:"removed,omitempty"` // with picker.Options.Detail
	Left    int         `json:"left,omitempty"`
	Of      hash        `json:"of"`
	Scores  named[hash] `json:"scores,omitempty"`
	By      string      `json:"by,omitempty"`
	Picked  []string    `json:"picked,omitempty"`
	Total   []number    `json:"total,omitempty"` // of each that was picked
}

func effectOf(s stamp, e *epp.Effect) *effect {
	out := &outcome{}
	x := &effect{stamp: s, kind: effectNames[e.Kind], says: out}
	if e.Request != nil {
		x.Request = e.Request.Serial
	}
	switch e.Kind {
	case epp.Ask:
		asked := []string{}
		for i := range e.Request.Needs {
			asked = append(asked, e.Request.Needs[i].Plugin+"/"+e.Request.Needs[i].Key)
		}
		x.says = asked
	case epp.Decided:
		out.decision, out.Error = decisionOf(e.Request), failureOf(e.Request.Err)
	case epp.Failed:
		out.Error = failureOf(e.Request.Err)
	case epp.Hooked:
		out.Headers, out.Metadata = pairsOf(e.Request.Response.HookHeaders()), e.Request.Response.Metadata()
	case epp.Unread:
		out.Plugin, out.Error = e.Plugin.Name(), e.Err.Error()
	case epp.Mismatch:
		out.Tokens = e.Count
	case epp.Left, epp.Revoked:
		w := &e.Flow
		out.place = &place{int(w.Kind), w.Outcome.String(), w.Priority, w.FairnessID, w.Bytes, w.Wait,
			w.PoolEmpty}
	}
	if e.Target != nil {
		out.Endpoint, out.Source = e.Target.ID(), e.Source
	}
	return x
}

// failureOf returns an error as the log has it, nil for none.
func failureOf(e *apierror.Error) any {
	if e == nil {
		return nil
	}
	return &failure{e.Status, e.Message, e.Reason}
}

func decisionOf(r *epp.Request) *decision {
	d := r.Decision
	if d == nil {
		return nil
	}
	x := &decision{Model: d.Request.TargetModel, Screened: removedBy(d.Screened), Set: pairsOf(d.Set), Drop: d.Drop}
	if r.Err == nil {
		x.To = d.Destination()
	}
	for i := range d.Profiles {
		x.Profiles.add(d.Profiles[i].Name, profileOf(d, &d.Profiles[i]))
	}
	if p := d.PrimaryProfile(); p != nil {
		x.Primary = p.Name
	}
	return x
}

func profileOf(d *picker.Decision, p *picker.ProfileResult) *profile {
	x := &profile{Removed: removedBy(p.Removed), Left: len(p.Left), Of: hashOf(p.Left)}
	for i, raw := range p.Raw {
		h := uint64(len(raw))
		for _, v := range raw {
			h = parse.Mix(h, math.Float64bits(v))
		}
		x.Scores.add(p.Scorers[i].Scorer.Name(), hash(h))
	}
	if p.Picker != nil && len(p.Picked) > 0 {
		x.By = p.Picker.Name()
	}
	for _, n := range p.Picked {
		x.Picked, x.Total = append(x.Picked, d.View.States[n].ID()), append(x.Total, number(p.Total(n)))
	}
	return x
}

// removedBy returns a hash of the endpoints that each plug-in took out.
func removedBy(list []picker.Removal) (x named[hash]) {
	for i := range list {
		x.add(list[i].By.Name(), hashOf(list[i].Removed))
	}
	return x
}

func hashOf(list []int32) hash {
	h := uint64(len(list))
	for _, v := range list {
		h = parse.Mix(h, uint64(v))
	}
	return hash(h)
}
