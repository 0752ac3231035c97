package inputlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// Player plays a log, line by line, into Machines of its own, and compares their effects with the log's.
type Player struct {
	// Registry holds the types of plug-ins.
	Registry picker.Registry
	// Pool, if not empty, chooses the pool, or the replica of a picker, for Machine and Of in a log of several.
	Pool string
	// Until, if not 0, is the time of the last line to play.
	Until machine.Time
	// Options, if not nil, changes the pickers' options before they are made.
	Options func(o *picker.Options)
	// Others are pickers of other configurations that decide each request, too.
	Others []*Other
	// Watch, if not nil, gets each effect but scrapes.
	Watch func(e *epp.Effect)
	// Scraped, if not nil, gets the picker's endpoints after each page of one of them. The View is valid until it
	// returns.
	Scraped func(now machine.Time, endpoint string, v *picker.View)
	// CheckStates compares each snapshot with the played state, where that is complete.
	CheckStates bool

	Counts
	// First is the first difference; nil when there is none.
	First *Difference

	pickers map[int]*played
	newest  int // the picker of the last snapshot
}

// Counts count the played lines.
type Counts struct {
	Pickers   int `json:"pickers"`
	Snapshots int `json:"snapshots"`
	Inputs    int `json:"inputs"`
	Effects   int `json:"effects"` // compared ones
	Requests  int `json:"requests"`
	Decisions int `json:"decisions"`
	// Different are inputs with other effects than the recorded ones.
	Different int `json:"different"`
	// Skipped are lines that could not be played: before a snapshot, or behind a gap.
	Skipped int `json:"skipped"`
	// Gaps counts the places where lines are missing, and Lost the missing lines.
	Gaps int   `json:"gaps"`
	Lost int64 `json:"lost"`
}

// played is one picker of the log.
type played struct {
	h        Header
	m        *epp.Machine
	log      *Log
	fx       epp.Effects
	requests map[uint64]*epp.Request
	pages    map[pageKey]*lastPage
	refused  []uint64 // refused requests, kept for their names
	got      [][]byte // effects that the log has not shown yet
	strayed  bool     // the rest of this input is not compared
	broken   bool     // lines are missing
}

// Lacking is the error of a plug-in that needed something that the log lacks.
type Lacking struct {
	Request string
	Err     error
}

func (e *Lacking) Error() string {
	if e.Request == "" {
		return fmt.Sprintf("%v; record it with --record-bodies", e.Err)
	}
	return fmt.Sprintf("request %s: %v; record it with --record-bodies", e.Request, e.Err)
}

func (e *Lacking) Unwrap() error { return e.Err }

// FormatError is the error of a log that a version with another format wrote.
type FormatError struct {
	Format  int
	Version string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("the log of inputs has format %d, written by windtunnel %s, and this one reads format %d; "+
		"play it with that version", e.Format, e.Version, Format)
}

// ErrEnough is Line's error for a line after Player.Until.
var ErrEnough = errors.New("enough")

// Line plays one line. An error ends the Player. A log that no picker wrote may make a Machine panic, which is an error
// here.
func (p *Player) Line(text []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("no picker writes a line like this: %v", v)
		}
	}()
	if p.pickers == nil {
		p.pickers = map[int]*played{}
	}
	if bytes.HasPrefix(text, []byte(`{"effect":`)) { // compared as it is
		return p.effect(text)
	}
	var x line
	if err := json.Unmarshal(text, &x); err != nil {
		return fmt.Errorf("not a line of a log of inputs: %w", err)
	}
	switch {
	case x.Log != nil:
		if x.Log.Format != Format {
			return &FormatError{x.Log.Format, x.Log.Version}
		}
		k := p.pickers[x.Log.Picker]
		if k == nil {
			k = &played{}
			p.pickers[x.Log.Picker] = k
			p.Pickers++
		}
		k.h = *x.Log
	case x.Snapshot != nil:
		return p.snapshot(x.Snapshot)
	case x.Gap != nil:
		p.Gaps++
		p.Lost += x.Gap.Lines
		for _, k := range p.pickers {
			k.broken, k.got = true, nil
		}
		for _, o := range p.Others {
			for _, k := range o.machines {
				k.broken = true
			}
		}
	case x.Input != nil:
		return p.input(x.Input)
	}
	return nil
}

// build makes a picker of a header's configuration. With follows it adopts decisions of another one.
func (h *Header) build(reg picker.Registry, change func(*picker.Options), follows bool) (*epp.Machine, error) {
	cfg := config.Default()
	if h.Config != nil {
		var err error
		if cfg, err = config.Read(h.Name, []byte(*h.Config)); err != nil {
			return nil, err
		}
	}
	o := picker.Options{Seed: h.Seed, AllowExperimental: h.AllowExperimental, IgnoreSubset: h.IgnoreSubset,
		Readiness: h.Readiness, Detail: h.Detail}
	if h.Predictor { // its answers are in the log
		o.Predictor = &picker.PredictorService{Prediction: []string{"http://recorded"}}
	}
	if change != nil {
		change(&o)
	}
	p, err := picker.New(cfg, reg, o)
	if err != nil {
		return nil, err
	}
	m, err := epp.New(epp.Config{Picker: p, ScrapeInterval: h.ScrapeInterval, Follows: follows, Quiet: true})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.Name, err)
	}
	return m, nil
}

func (p *Player) snapshot(x *snapshot) error {
	k := p.pickers[x.Picker]
	if k == nil || x.State == nil {
		return fmt.Errorf("a snapshot of picker %d without its header", x.Picker)
	}
	if p.Until != 0 && x.State.At > p.Until {
		return ErrEnough
	}
	p.Snapshots++
	if p.Pool == "" || p.Pool == k.h.Pool || p.Pool == k.h.Replica {
		p.newest = x.Picker
	}
	p.leftOver(k)
	if p.CheckStates && k.m != nil && !k.broken {
		if err := k.same(x.State); err != nil {
			return err
		}
	}
	m, err := k.h.build(p.Registry, p.Options, false)
	if err != nil {
		return err
	}
	*k = played{h: k.h, m: m, requests: map[uint64]*epp.Request{}, pages: map[pageKey]*lastPage{}}
	if err := m.Load(x.State, &k.fx, k.read, func(r *epp.Request) { k.requests[r.Serial] = r }); err != nil {
		return fmt.Errorf("the snapshot of picker %d: %w", x.Picker, err)
	}
	k.fx.Reset()
	k.log = New(m, k.h, func(lines []byte) {
		if bytes.HasPrefix(lines, []byte(`{"effect":`)) {
			k.got = append(k.got, bytes.TrimSuffix(bytes.Clone(lines), []byte("\n")))
		}
	})
	k.log.pages = map[pageKey]*lastPage{}
	m.SetLog(k.log)
	for _, o := range p.Others {
		if err := o.start(p, k, x); err != nil {
			return err
		}
	}
	return nil
}

// Pools returns the names of the pools whose pickers the log has; none if it has no names.
func (p *Player) Pools() []string {
	names := map[string]bool{}
	for _, k := range p.pickers {
		if k.h.Pool != "" {
			names[k.h.Pool] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Machine returns the last played picker as it was at a time, nil if there is none. Of returns the same one of Others.
func (p *Player) Machine(at machine.Time) *epp.Machine {
	return p.last(at, p.pickers)
}

// Of returns the picker of another configuration, as Machine returns the recorded one.
func (p *Player) Of(o *Other, at machine.Time) *epp.Machine { return p.last(at, o.machines) }

func (p *Player) last(at machine.Time, of map[int]*played) *epp.Machine {
	k := of[p.newest]
	if k == nil || k.m == nil || k.broken {
		return nil
	}
	k.m.SetLog(nil)
	k.m.Advance(at, &k.fx)
	k.fx.Reset()
	return k.m
}

// same compares a snapshot with the played state.
func (k *played) same(s *epp.State) error {
	k.m.Advance(s.At, &k.fx)
	got, err := json.Marshal(k.m.Save(k.log.content))
	if err != nil {
		return err
	}
	want, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if d := differ(want, got); d != nil {
		return fmt.Errorf("the state at %s differs from the played one: %s: recorded %s, now %s", s.At,
			d.Field, d.Recorded, d.Now)
	}
	return nil
}

// playing returns the picker of a line, nil if the line is skipped or, with an error, after Until.
func (p *Player) playing(number int, at machine.Time) (*played, error) {
	k := p.pickers[number]
	switch {
	case k == nil || k.m == nil || k.broken:
		p.Skipped++
		return nil, nil
	case p.Until != 0 && at > p.Until:
		return nil, ErrEnough
	}
	return k, nil
}

// input plays a message.
func (p *Player) input(x *input) error {
	k, err := p.playing(x.Picker, x.At)
	if k == nil {
		return err
	}
	p.leftOver(k)
	k.strayed = false
	if len(p.Others) > 0 { // effects that were due before it do not depend on it
		k.m.Advance(x.At, &k.fx)
		if err := p.effects(x.Picker, k); err != nil {
			return err
		}
	}
	for _, o := range p.Others {
		if err := o.input(x); err != nil {
			return err
		}
	}
	msg, err := k.message(x)
	if err != nil {
		return err
	}
	p.Inputs++
	if x.Arrive != nil {
		p.Requests++
	}
	k.take(x, msg)
	if x.Scraped != nil && p.Scraped != nil {
		p.Scraped(x.At, x.Scraped.Endpoint, k.m.Picker().Pool().View())
	}
	return p.effects(x.Picker, k)
}

// take passes a message to the machine.
func (k *played) take(x *input, msg epp.Message) {
	r := k.requests[x.Request]
	late := x.Arrive != nil && r.Over() // its end was here before it was
	k.m.Input(x.At, msg, &k.fx)
	if late || x.Done != nil && r.Request != nil {
		delete(k.requests, x.Request)
	}
}

// effects looks through the effects of an input: for a plug-in that needed missing data, and for decisions.
func (p *Player) effects(number int, k *played) error {
	defer k.fx.Reset()
	for i := range k.fx.List {
		e := &k.fx.List[i]
		if r := e.Request; r != nil && r.Err != nil {
			if u := (*parse.Unknown)(nil); errors.As(r.Err, &u) {
				return &Lacking{r.ID, errors.New(r.Err.Message)}
			}
		}
		if p.Watch != nil && e.Kind != epp.Scrape {
			p.Watch(e)
		}
		if e.Kind != epp.Decided {
			continue
		}
		if e.Request.Over() {
			k.refuse(e.Request.Serial)
		}
		for _, o := range p.Others {
			if err := o.decided(number, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// refuse forgets the oldest refused requests.
func (k *played) refuse(serial uint64) {
	k.refused = append(k.refused, serial)
	if len(k.refused) > maxRefused {
		delete(k.requests, k.refused[0])
		k.refused = k.refused[1:]
	}
}

// maxRefused is the number of refused requests that are kept for their names.
const maxRefused = 1000

// message returns the message of an input.
func (k *played) message(x *input) (epp.Message, error) {
	if x.Request > 0 {
		return k.about(x)
	}
	switch {
	case x.Endpoints != nil:
		return epp.Endpoints{List: x.Endpoints}, nil
	case x.Objects != nil:
		return x.Objects.objects(), nil
	case x.Scraped != nil:
		return k.scraped(x.Scraped)
	case x.KVEvents != nil:
		return x.KVEvents.events(), k.checkIndex(x.KVEvents.Index)
	case x.KVLost != nil:
		return *x.KVLost, k.checkIndex(x.KVLost.Index)
	case x.LoseIndexes != nil:
		return epp.LoseIndexes{}, nil
	case x.Shutdown != nil:
		return epp.Shutdown{}, nil
	}
	return nil, errors.New("an input without a message that this version knows")
}

// about returns the message of an input about a request.
func (k *played) about(x *input) (epp.Message, error) {
	r := k.requests[x.Request]
	if r == nil {
		if x.Arrive == nil && x.Done == nil {
			return nil, fmt.Errorf("request number %d has not arrived", x.Request)
		}
		r = &epp.Request{Serial: x.Request}
		k.requests[x.Request] = r
	}
	if r.Request == nil && x.Arrive == nil && x.Done == nil {
		return nil, fmt.Errorf("request number %d is over and has not arrived", x.Request)
	}
	switch {
	case x.Arrive != nil:
		var err error
		r.Request, err = x.Arrive.request(k.m.Picker())
		return epp.Arrive{Request: r}, err
	case x.Answered != nil:
		answers := make([]picker.Answer, len(x.Answered))
		for i := range x.Answered {
			answers[i] = x.Answered[i].answer()
		}
		msg := k.m.Answer(r, answers)
		for i := range answers {
			if u := (*parse.Unknown)(nil); errors.As(answers[i].Err, &u) {
				return nil, &Lacking{r.ID, answers[i].Err}
			}
		}
		return msg, nil
	case x.Leave != nil:
		return epp.Leave{Request: r}, nil
	case x.Headers != nil:
		r.Response = x.Headers.response(k.m.Picker(), r.Decision)
		return epp.Headers{Request: r}, nil
	case x.Piece != nil:
		return epp.Piece{Request: r}, k.progress(r, x.Piece)
	case x.Done != nil:
		r.ErrSent = x.Done.ErrSent
		if x.Done.Read == nil {
			return epp.Done{Request: r}, nil
		}
		return epp.Done{Request: r}, k.progress(r, x.Done.Read)
	}
	return nil, errors.New("an input about a request without a message that this version knows")
}

// progress restores the state of a response.
func (k *played) progress(r *epp.Request, x *progress) error {
	if x.Response != nil {
		r.Response = x.Response.response(k.m.Picker(), r.Decision)
	}
	if r.Response == nil {
		return fmt.Errorf("request number %d has no response", r.Serial)
	}
	r.Response.Describe(x.progress())
	return nil
}

func (k *played) checkIndex(i int) error {
	if i < 0 || i >= len(k.m.Indexes()) {
		return fmt.Errorf("KV events of index %d, which the picker does not have", i)
	}
	return nil
}

func (k *played) scraped(x *scraped) (epp.Message, error) {
	t := k.m.Target(x.Endpoint)
	switch {
	case t == nil:
		return nil, fmt.Errorf("a page of %s, which is no endpoint of the pool", x.Endpoint)
	case x.Source < 0 || x.Source >= len(k.m.Sources()):
		return nil, fmt.Errorf("a page of data source %d, which the picker does not have", x.Source)
	}
	page, failed, err := k.page(x)
	return epp.Scraped{Target: t, Source: x.Source, Page: page, Err: failed}, err
}

// page returns the result of a scrape: a page, or the reason for its lack.
func (k *played) page(x *scraped) (page metrics.Page, failed, err error) {
	if x.Error != nil {
		return nil, errors.New(*x.Error), nil
	}
	key := pageKey{x.Endpoint, x.Source}
	if k.pages[key] == nil {
		k.pages[key] = &lastPage{}
	}
	page, err = k.pages[key].page(x)
	return page, nil, err
}
