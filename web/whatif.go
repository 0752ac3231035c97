package web

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/tidwall/gjson"
	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// question is a what-if question: which decisions would differ with another configuration, or with other metrics of
// endpoints?
type question struct {
	// Pool names the pool of the picker; "" means the first one.
	Pool string `json:"pool"`
	// Config is a whole EndpointPickerConfig; "" means the recorded one.
	Config string `json:"config"`
	// Weights are scorers' weights by profile and scorer, such as "default/queue-scorer". Off lists scorers to leave
	// out.
	Weights map[string]float64 `json:"weights"`
	Off     []string           `json:"off"`
	// Request is the request whose decision is explained in full. States are the endpoints' metrics for this
	// decision, by address.
	Request string           `json:"request"`
	States  map[string]known `json:"states"`
}

// known replaces an endpoint's metrics. Nil fields stay as they were.
type known struct {
	Waiting *int64   `json:"waiting"`
	Running *int64   `json:"running"`
	KV      *float64 `json:"kv"`
}

// answer is the answer to a question.
type answer struct {
	Config string `json:"config"`
	inputlog.Moves
	Endpoints []inputlog.MovedEndpoint `json:"endpoints"`
	Reasons   []inputlog.MovedReason   `json:"reasons"`
	// Requests are those among the latest decisions that would have had another destination. Last is the number of
	// decisions examined for them.
	Requests []elsewhereTo `json:"requests"`
	Last     int           `json:"last"`
	// Was and Now explain the recorded and the new decision on the question's request.
	Was   *picker.Explanation `json:"was,omitempty"`
	Now   *picker.Explanation `json:"now,omitempty"`
	Notes []string            `json:"notes,omitempty"`
	Took  float64             `json:"seconds"`
}

// elsewhereTo is one request that would have had another destination.
type elsewhereTo struct {
	Request string `json:"request"`
	From    string `json:"from"`
	To      string `json:"to"`
}

// lookedAt is the number of latest decisions whose requests an answer lists.
const lookedAt = 1000

// whatIf replays the log of inputs, and makes each decision a second time with the other configuration. Each second
// decision is independent of the others.
func whatIf(ctx context.Context, each func(func([]byte) error) error, q question) (*answer, error) {
	began := time.Now()
	text, number, err := recorded(each, q.Pool)
	if err != nil {
		return nil, err
	}
	if q.Config != "" {
		text = q.Config
	}
	if text, err = q.change(text); err != nil {
		return nil, err
	}
	a := &answer{Config: text}
	var last []elsewhereTo
	other := &inputlog.Other{Config: text, Name: "what if"}
	counted := 0
	other.Look = func(r *epp.Request, own *picker.Decision) {
		if q.Request != "" && record.Named(q.Request, r.ID) {
			a.Was, a.Now = r.Decision.Explain(), own.Explain()
		}
		a.Look(r, own)
		if a.Decisions == counted {
			return
		}
		counted = a.Decisions
		x := elsewhereTo{Request: r.ID, From: r.Decision.Destination(), To: own.Destination()}
		if own.Err != nil {
			x.To = "refused: " + own.Err.Message
		}
		if x.From == x.To {
			x.Request = ""
		}
		if last = append(last, x); len(last) > 2*lookedAt {
			last = slices.Delete(last, 0, lookedAt)
		}
	}
	other.Change = func(r *epp.Request, p *picker.Pool) func() { return q.know(r, p) }
	player := &inputlog.Player{Registry: plugins.Builtin(), Others: []*inputlog.Other{other},
		Options: func(o *picker.Options) { o.Detail = true }}
	lines := 0
	err = each(func(line []byte) error {
		if lines++; lines%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if n := pickerOf(line); n != 0 && n != number {
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
	if len(last) > lookedAt {
		last = last[len(last)-lookedAt:]
	}
	a.Last = len(last)
	for _, x := range slices.Backward(last) {
		if x.Request != "" {
			a.Requests = append(a.Requests, x)
		}
	}
	a.Endpoints, a.Reasons, a.Notes, a.Took = a.Moves.Endpoints(), a.Moves.Reasons(), other.Notes,
		time.Since(began).Seconds()
	if player.Lost > 0 {
		a.Notes = append(a.Notes,
			fmt.Sprintf("%d lines of the log are missing; the answer leaves them out", player.Lost))
	}
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

// recorded returns the configuration of a pool's picker from the log, and the picker's number.
func recorded(each func(func([]byte) error) error, pool string) (text string, number int, err error) {
	err = each(func(line []byte) error {
		h := gjson.GetBytes(line, "log")
		if !h.Exists() || pool != "" && h.Get("pool").Str != pool && h.Get("replica").Str != pool {
			return nil
		}
		text, number = h.Get("config").Str, int(h.Get("picker").Int())
		return errStop
	})
	switch {
	case errors.Is(err, errStop):
		return text, number, nil
	case err != nil:
		return "", 0, err
	}
	return "", 0, errors.New("the run has no log of inputs: only windtunnel's own endpoint picker writes one")
}

// change returns the configuration with the question's weights.
func (q *question) change(text string) (string, error) {
	if len(q.Weights)+len(q.Off) == 0 {
		if text == "" {
			return defaultText()
		}
		return text, nil
	}
	if text == "" {
		var err error
		if text, err = defaultText(); err != nil {
			return "", err
		}
	}
	var c map[string]any
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return "", err
	}
	profiles, _ := c["schedulingProfiles"].([]any)
	if len(profiles) == 0 {
		return "", errors.New("the configuration names no scheduling profiles, so there are no weights to change; " +
			"change its text")
	}
	found := map[string]bool{}
	for _, p := range profiles {
		profile, _ := p.(map[string]any)
		name, _ := profile["name"].(string)
		list, _ := profile["plugins"].([]any)
		var kept []any
		for _, x := range list {
			plugin, _ := x.(map[string]any)
			ref, _ := plugin["pluginRef"].(string)
			key := name + "/" + ref
			found[key] = true
			if slices.Contains(q.Off, key) {
				continue
			}
			if w, ok := q.Weights[key]; ok {
				plugin["weight"] = w
			}
			kept = append(kept, x)
		}
		profile["plugins"] = kept
	}
	for key := range maps.Keys(q.Weights) {
		if !found[key] {
			return "", fmt.Errorf("the configuration has no scorer %s (profile/scorer)", key)
		}
	}
	out, err := yaml.Marshal(c)
	return string(out), err
}

// defaultText returns the default configuration as text.
func defaultText() (string, error) {
	d := config.Default()
	var list, refs []any
	for _, p := range d.Plugins {
		list = append(list, map[string]any{"type": p.Type, "name": p.Name})
	}
	for _, p := range d.SchedulingProfiles[0].Plugins {
		refs = append(refs, map[string]any{"pluginRef": p.PluginRef, "weight": *p.Weight})
	}
	out, err := yaml.Marshal(map[string]any{"apiVersion": d.APIVersion, "kind": d.Kind, "plugins": list,
		"schedulingProfiles": []any{map[string]any{"name": d.SchedulingProfiles[0].Name, "plugins": refs}}})
	return string(out), err
}

// know replaces endpoints' metrics for one decision. Undo restores them.
func (q *question) know(r *epp.Request, p *picker.Pool) (undo func()) {
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

// ask answers a what-if question of the page.
func (s *Server) ask(w http.ResponseWriter, r *http.Request) {
	var q question
	if !read(w, r, &q) {
		return
	}
	each := s.state.Load().inputs
	if each == nil {
		problem(w, http.StatusConflict, "this run has no log of inputs")
		return
	}
	if !s.asking.TryLock() {
		problem(w, http.StatusTooManyRequests, "another question is being answered")
		return
	}
	defer s.asking.Unlock()
	a, err := whatIf(r.Context(), each, q)
	if err != nil {
		problem(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	writeJSON(w, a)
}
