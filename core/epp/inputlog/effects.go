package inputlog

import (
	"math"

	"github.com/windtunnel/windtunnel/core/apierror"
	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/parse"
)

// effect is what came of messages. What a person would want to read is
// there as it is; of what is only compared (all endpoints' scores, those that a
// filter left) a hash. Exactly one of the fields behind stamp is there.
type effect struct {
	stamp
	Asked     []string `json:"asked,omitzero"`
	Decided   *outcome `json:"decided,omitempty"`
	Evicted   *outcome `json:"evicted,omitempty"`
	Failed    *outcome `json:"failed,omitempty"`
	Hooked    *outcome `json:"hooked,omitempty"`
	Departed  *outcome `json:"departed,omitempty"`
	Unread    *outcome `json:"unread,omitempty"`
	Forgotten *outcome `json:"forgotten,omitempty"`
	Dial      *outcome `json:"dial,omitempty"`
	Hangup    *outcome `json:"hangup,omitempty"`
	Mismatch  *outcome `json:"mismatch,omitempty"`
	Queued    *outcome `json:"queued,omitempty"`
	Left      *outcome `json:"left,omitempty"`
	Revoked   *outcome `json:"revoked,omitempty"`
}

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
	x, out := &effect{stamp: s}, &outcome{}
	if e.Request != nil {
		x.Request = e.Request.Serial
	}
	switch e.Kind {
	case epp.Ask:
		for i := range e.Request.Needs {
			x.Asked = append(x.Asked, e.Request.Needs[i].Plugin+"/"+e.Request.Needs[i].Key)
		}
	case epp.Decided:
		x.Decided, out.decision = out, decisionOf(e.Request)
		out.Error = failureOf(e.Request.Err)
	case epp.Evict:
		x.Evicted = out
	case epp.Failed:
		x.Failed, out.Error = out, failureOf(e.Request.Err)
	case epp.Hooked:
		x.Hooked, out.Headers = out, pairsOf(e.Request.Response.HookHeaders())
		out.Metadata = e.Request.Response.Metadata()
	case epp.Departed:
		x.Departed = out
	case epp.Unread:
		x.Unread, out.Plugin, out.Error = out, e.Plugin.Name(), e.Err.Error()
	case epp.Forgotten:
		x.Forgotten = out
	case epp.Dial:
		x.Dial = out
	case epp.Hangup:
		x.Hangup = out
	case epp.Mismatch:
		x.Mismatch, out.Tokens = out, e.Count
	case epp.Queued:
		x.Queued = out
	case epp.Left, epp.Revoked:
		if x.Left = out; e.Kind == epp.Revoked {
			x.Left, x.Revoked = nil, out
		}
		w := &e.Flow
		out.place = &place{int(w.Kind), w.Outcome.String(), w.Priority, w.FairnessID, int64(w.Bytes), w.Wait, w.PoolEmpty}
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
