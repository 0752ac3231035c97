package inputlog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
)

// Other is a picker of another configuration that gets all inputs of the recorded one. It decides each request too, and
// then adopts the recorded decision, so that its state results from the real decisions: each of its answers stands
// alone.
type Other struct {
	// Config is the EndpointPickerConfig's text; errors call it Name.
	Config, Name string
	// Look, if not nil, gets each recorded decision and this picker's own, which is valid until Look returns.
	Look func(r *epp.Request, own *picker.Decision)
	// Change, if not nil, changes the endpoints' state in this picker's pool before it decides about a request; undo is
	// called after that.
	Change func(r *epp.Request, pool *picker.Pool) (undo func())
	// Notes list the facts that this configuration needs and the recording lacks.
	Notes []string

	machines map[int]*played
	sources  map[int][]int // of the recorded data sources, in this configuration
	unlike   []bool        // indexes of KV blocks whose keys differ from the recorded ones
}

func (o *Other) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(o.Notes, text) {
		o.Notes = append(o.Notes, text)
	}
}

// start makes the machine that continues from a snapshot, beside k.
func (o *Other) start(p *Player, k *played, x *snapshot) error {
	if was := o.machines[x.Picker]; was != nil && !was.broken {
		return nil // its state is more complete than the snapshot
	}
	h := k.h
	h.Config, h.Name = &o.Config, o.Name
	m, err := h.build(p.Registry, func(opt *picker.Options) {
		opt.AllowExperimental, opt.Detail = true, true
		if p.Options != nil {
			p.Options(opt)
		}
	}, true)
	if err != nil {
		return err
	}
	own := &played{h: h, m: m, requests: map[uint64]*epp.Request{}, pages: map[pageKey]*lastPage{}}
	if err := m.Load(x.State, &own.fx, own.read, func(r *epp.Request) { own.requests[r.Serial] = r }); err != nil {
		return fmt.Errorf("%s: the snapshot of picker %d: %w", o.Name, x.Picker, err)
	}
	own.fx.Reset()
	if o.machines == nil {
		o.machines = map[int]*played{}
	}
	o.machines[x.Picker] = own
	o.compare(k, own, x.State)
	return nil
}

// compare finds the recorded inputs that this configuration can use, and the missing ones.
func (o *Other) compare(k, own *played, s *epp.State) {
	o.sources = map[int][]int{}
	for j, theirs := range own.m.Sources() {
		found := false
		for i, src := range k.m.Sources() {
			if src.Scheme == theirs.Scheme && src.Path == theirs.Path && src.Port == theirs.Port {
				o.sources[i], found = append(o.sources[i], j), true
				break
			}
		}
		if !found {
			o.note("data source %s asks endpoints for %s, and nobody did: its metrics are unknown",
				theirs.Source.Name(), theirs.Path)
		}
	}
	o.unlike = nil
	for i, ix := range own.m.Indexes() {
		if i < len(k.m.Indexes()) {
			o.unlike = append(o.unlike, ix.Config.Hasher != k.m.Indexes()[i].Config.Hasher)
		}
	}
	if n, recorded := len(own.m.Indexes()), len(k.m.Indexes()); n > recorded {
		o.note("%d of its %d indexes of KV blocks hear no events: the recorded picker had %d", n-recorded, n, recorded)
	}
	if s.Picker.Commits == 0 {
		return
	}
	for _, pl := range own.m.Picker().Plugins() {
		_, keeps := pl.(picker.StateKeeper)
		if keeps && !slices.ContainsFunc(s.Picker.Plugins,
			func(x picker.SavedPlugin) bool { return x.Name == pl.Name() && x.Type == pl.Type() }) {
			o.note("what plugin %s remembers begins with the recording", pl.Name())
		}
	}
}

// input passes an input of the recorded machine to this one.
func (o *Other) input(x *input) error {
	own := o.machines[x.Picker]
	if own == nil {
		return nil
	}
	defer own.fx.Reset()
	switch {
	case x.Scraped != nil:
		return o.scraped(own, x)
	case x.KVEvents != nil:
		return o.kvEvents(own, x)
	case x.KVLost != nil && x.KVLost.Index >= len(own.m.Indexes()):
		return nil
	case x.Request > 0 && x.Arrive == nil && own.requests[x.Request] == nil:
		return nil
	}
	msg, err := own.message(x)
	if err != nil {
		return err
	}
	own.take(x, msg)
	return nil
}

// scraped passes a page to all data sources that request it.
func (o *Other) scraped(own *played, x *input) error {
	t := own.m.Target(x.Scraped.Endpoint)
	page, failed, err := own.page(x.Scraped)
	if err != nil || t == nil {
		return err
	}
	for _, source := range o.sources[x.Scraped.Source] {
		own.m.Input(x.At, epp.Scraped{Target: t, Source: source, Page: page, Err: failed}, &own.fx)
	}
	return nil
}

// kvEvents passes events to the index of the same number. The events have the recorded configuration's keys. If this
// one's keys differ, the index computes them from the tokens.
func (o *Other) kvEvents(own *played, x *input) error {
	if x.KVEvents.Index >= len(o.unlike) {
		return nil
	}
	msg := x.KVEvents.events()
	for i := range msg.Events {
		e := &msg.Events[i]
		if len(e.Tokens) == 0 && len(e.Keys) > 0 && o.unlike[x.KVEvents.Index] {
			return &Lacking{Err: errors.New(o.Name +
				": KV blocks have other keys than in the recording, which must be made of their tokens")}
		}
	}
	own.m.Input(x.At, msg, &own.fx)
	return nil
}

// decided makes the machine decide a request, and then adopt the recorded decision.
func (o *Other) decided(number int, e *epp.Effect) (err error) {
	own := o.machines[number]
	if own == nil || own.requests[e.Request.Serial] == nil {
		return nil
	}
	r := own.requests[e.Request.Serial]
	if r.Asking() {
		for _, n := range r.Needs {
			o.note("plugin %s asked nobody: the recording has no answer to %s", n.Plugin, n.Key)
		}
	}
	undo := func() {}
	if o.Change != nil {
		own.m.Advance(e.At, &own.fx)
		undo = o.Change(e.Request, own.m.Picker().Pool())
	}
	own.m.Follow(e.At, r, e.Request.Decision, &own.fx, func(d *picker.Decision) {
		if u := (*parse.Unknown)(nil); d.Err != nil && errors.As(d.Err, &u) {
			err = &Lacking{r.ID, fmt.Errorf("%s: %s", o.Name, d.Err.Message)}
		} else if o.Look != nil {
			o.Look(e.Request, d)
		}
		undo()
	})
	own.fx.Reset()
	if r.Over() {
		delete(own.requests, r.Serial)
	}
	return err
}
