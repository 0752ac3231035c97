// Package whatif asks a log of inputs what another configuration of the endpoint picker, other weights, or other
// metrics of endpoints would have decided. Ask takes the log's lines and a Question, and returns an Answer. Each
// decision is made by itself, after the recorded ones.
package whatif

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Question says what differs from the recorded run.
type Question struct {
	// Pool names the pool, or the replica of its picker, that is asked; "" means the first one of the log. Every asks
	// all pickers, and needs a Config.
	Pool  string `json:"pool"`
	Every bool   `json:"-"`
	// Config is a whole EndpointPickerConfig, "" for the recorded one. Name is its name in errors.
	Config string `json:"config"`
	Name   string `json:"-"`
	// Weights are weights by scorer, such as "queue-scorer", or by profile and scorer, such as "default/queue-scorer".
	// Off lists scorers to leave out.
	Weights map[string]float64 `json:"weights"`
	Off     []string           `json:"off"`
	// Request is the request whose decision is explained in full. States are the endpoints' metrics for this
	// decision, by address.
	Request string           `json:"request"`
	States  map[string]Known `json:"states"`
	// Most is how many of the latest moved requests the answer lists, 0 for all.
	Most int `json:"-"`
}

// Known replaces an endpoint's metrics. Nil fields stay as they were.
type Known struct {
	Waiting *int64   `json:"waiting"`
	Running *int64   `json:"running"`
	KV      *float64 `json:"kv"`
}

// Answer is the answer to a question.
type Answer struct {
	Config string `json:"config"` // the configuration that was asked, as text
	inputlog.Moves
	Endpoints []inputlog.MovedEndpoint `json:"endpoints"`
	Reasons   []inputlog.MovedReason   `json:"reasons"`
	Scores    []inputlog.MovedScore    `json:"scores"`
	// Was and Now explain the recorded and the new decision on the question's request, and Move is the difference of
	// the two, nil where both chose the same.
	Was   *picker.Explanation    `json:"was,omitempty"`
	Now   *picker.Explanation    `json:"now,omitempty"`
	Move  *inputlog.MovedRequest `json:"move,omitempty"`
	Notes []string               `json:"notes,omitempty"`
	// Lost counts lines that are missing in the log.
	Lost int64 `json:"lost,omitempty"`
	// First is the first decision for which the recorded configuration itself now decides differently.
	First *inputlog.Difference `json:"first,omitempty"`
}

// Ask plays a log of inputs, and makes each decision a second time as the question says. each calls a function with
// every line of the log, in order; without Every, Ask calls each twice.
func Ask(each func(func(line []byte) error) error, q Question) (*Answer, error) {
	text, number := q.Config, 0
	if !q.Every {
		recorded, n, err := first(each, q.Pool)
		if err != nil {
			return nil, err
		}
		text, number = cmp.Or(text, recorded), n
	}
	text, err := Change(q.Name, text, q.Weights, q.Off)
	if err != nil {
		return nil, err
	}
	a := &Answer{Config: text, Moves: inputlog.Moves{Most: q.Most}}
	other := &inputlog.Other{Config: text, Name: cmp.Or(q.Name, "what if")}
	other.Look = func(r *epp.Request, own *picker.Decision) {
		m := a.Look(r, own)
		if q.Request != "" && record.Named(q.Request, r.ID) {
			a.Was, a.Now, a.Move = r.Decision.Explain(), own.Explain(), m
		}
	}
	other.Change = func(r *epp.Request, p *picker.Pool) func() { return q.know(r, p) }
	player := &inputlog.Player{Registry: plugins.Builtin(), Others: []*inputlog.Other{other},
		Options: func(o *picker.Options) { o.Detail = true }}
	err = each(func(line []byte) error {
		if n := pickerOf(line); n != 0 && n != number && !q.Every {
			return nil
		}
		return player.Line(line)
	})
	var lacking *inputlog.Lacking
	if errors.As(err, &lacking) {
		return nil, fmt.Errorf("the log cannot answer this: %w", err)
	}
	if err != nil {
		return nil, err
	}
	a.Endpoints, a.Reasons, a.Scores, a.Notes, a.Lost, a.First = a.Moves.Endpoints(), a.Moves.Reasons(),
		a.Moves.Scores(), other.Notes, player.Lost, player.First
	return a, nil
}

// pickerOf returns the number of a line's picker, or 0 for a line that concerns all pickers.
func pickerOf(line []byte) int {
	for _, x := range gjson.GetManyBytes(line, "input.picker", "effect.picker", "snapshot.picker", "log.picker") {
		if x.Exists() {
			return int(x.Int())
		}
	}
	return 0
}

// errFound ends the search for a picker.
var errFound = errors.New("found")

// first returns the configuration of a pool's first picker in the log, and the picker's number.
func first(each func(func([]byte) error) error, pool string) (text string, number int, err error) {
	err = each(func(line []byte) error {
		h := gjson.GetBytes(line, "log")
		if !h.Exists() || pool != "" && h.Get("pool").Str != pool && h.Get("replica").Str != pool {
			return nil
		}
		text, number = h.Get("config").Str, int(h.Get("picker").Int())
		return errFound
	})
	switch {
	case errors.Is(err, errFound):
		return text, number, nil
	case err != nil:
		return "", 0, err
	}
	return "", 0, errors.New("the run has no log of inputs: only windtunnel's own endpoint picker writes one")
}

// know replaces endpoints' metrics for one decision. Undo restores them.
func (q *Question) know(r *epp.Request, p *picker.Pool) (undo func()) {
	if q.Request == "" || len(q.States) == 0 || !record.Named(q.Request, r.ID) {
		return func() {}
	}
	type was struct {
		place int
		at    machine.Time
		m     picker.Metrics
	}
	var changed []was
	for i := range p.View().States {
		s := &p.View().States[i]
		k, ok := q.States[s.HostPort()]
		if !ok {
			continue
		}
		changed = append(changed, was{i, s.UpdatedAt, s.Metrics})
		m := s.Metrics
		for _, x := range []struct{ from, to *int64 }{{k.Waiting, &m.Waiting}, {k.Running, &m.Running}} {
			if x.from != nil {
				*x.to = max(0, *x.from)
			}
		}
		if k.KV != nil {
			m.KVUsage = min(1, max(0, *k.KV))
		}
		p.Update(s.UpdatedAt, i, m)
	}
	return func() {
		for _, x := range changed {
			p.Update(x.at, x.place, x.m)
		}
	}
}
