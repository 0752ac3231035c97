package epp

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Config holds what one endpoint picker is made of.
type Config struct {
	// Picker holds the plug-ins. It is the Machine's alone from then on.
	Picker *picker.Picker
	// Stream holds what the streams share.
	Stream stream.Config
	// EmitScores puts the scores into the dynamic metadata (--emit-endpoint-scores).
	EmitScores bool
	// RecordOnly says that only the record is read of a decision: no dynamic
	// metadata is made, and once a decision is told it forgets the endpoints that
	// it did not choose (picker.Picker.Strip), unless its response explains it.
	RecordOnly bool
	// DocumentHeaders adds the destination headers of documents 002 and 003 (docs/documents.md) to
	// the request and the response.
	DocumentHeaders bool
	// ExplainHeaders has every response say why, as one whose request asks for it
	// by picker.HeaderExplain. DocumentHeaders is part of it.
	ExplainHeaders bool
	// Explain adds the reasons of a decision to the record of its request, with
	// so many endpoints in each list; 0 adds none.
	Explain int
	// History is how many decisions are remembered for people; 0 is none.
	History int
	// Describe has requests described well enough to be played again from a log,
	// whatever the plug-ins read of them.
	Describe bool
	// Told has requests wait until Machine.Tell says what became of them elsewhere.
	// There is no flow control then.
	Told bool
	// Quiet asks endpoints for nothing: whoever plays a log brings what came of it.
	Quiet bool
	// ScrapeInterval is that of data sources which do not say their own. 0 is
	// DefaultScrapeInterval.
	ScrapeInterval machine.Time
	// Replica is the number of this picker among so many Replicas, which share the
	// time between their scrapes; 0 of 0 is the only one.
	Replica, Replicas int
}

// describedTokens is how much of a prompt a log describes: as much as an
// approximate index compares.
const describedTokens = 131072

// The real EPP's defaults (--refresh-metrics-interval and its client's).
const (
	DefaultScrapeInterval = 50 * machine.Millisecond
	DefaultScrapeTimeout  = machine.Second
)

// Machine is an endpoint picker. It is a machine.Machine[Message, *Effects].
type Machine struct {
	c   Config
	p   *picker.Picker
	now machine.Time
	fx  *Effects // the caller's, during a call

	fc        *flowcontrol.Controller // nil without flow control
	flowFx    machine.Effects[flowcontrol.Effect]
	queue     map[flowcontrol.RequestID]*Request
	numbers   flowcontrol.RequestID
	playing   bool // flow control's effects are being carried out
	evicts    bool // flow control ends requests with a priority below 0, if it must
	affine    []affine
	hooks     picker.Hooks
	scraping  scraping
	pull      func(now machine.Time) // brings metrics, in place of scrapes; may be nil
	indexes   []*index
	indexFx   kvindex.Effects
	told      kvindex.Events
	decisions decisions
	observed  *observed // nil where nobody reads metrics
	evicted   bool      // flow control has evicted a request

	log    Log
	serial uint64   // of requests, in the log
	flying *Request // the newest of those that are not over
}

// affine is a plug-in that binds sessions to endpoints.
type affine interface {
	picker.Plugin
	Affinity() (hits, misses int64)
}

// New makes the machine, without endpoints.
func New(c Config) (*Machine, error) {
	if c.ScrapeInterval <= 0 {
		c.ScrapeInterval = DefaultScrapeInterval
	}
	if c.Describe {
		c.Picker.DivideBy(parse.UnitTokens, describedTokens)
	}
	m := &Machine{c: c, p: c.Picker, hooks: c.Picker.Hooks(), queue: map[flowcontrol.RequestID]*Request{}}
	m.decisions.keep = c.History
	for _, pl := range m.p.Plugins() {
		if a, ok := pl.(affine); ok {
			m.affine = append(m.affine, a)
		}
	}
	if m.p.FlowControl() && !c.Told {
		c := m.p.Config().FlowControl
		m.evicts = c != nil && c.EnableEviction
		cfg, err := plugins.FlowControl(m.p)
		if err == nil {
			m.fc, err = flowcontrol.NewController(cfg)
		}
		if err != nil {
			return nil, fmt.Errorf("flowControl: %w", err)
		}
	}
	m.scraping.quiet, m.scraping.replica, m.scraping.replicas = c.Quiet, c.Replica, max(1, c.Replicas)
	m.scraping.init(m.p, c.ScrapeInterval)
	m.openIndexes()
	return m, nil
}

// Now returns the time that the Machine knows of.
func (m *Machine) Now() machine.Time { return m.now }

// Picker returns the picker, to be looked at in the Machine's turn.
func (m *Machine) Picker() *picker.Picker { return m.p }

// FlowControl returns the flow control, nil where there is none; to be looked at in
// the Machine's turn.
func (m *Machine) FlowControl() *flowcontrol.Controller { return m.fc }

// InFlight returns how many requests flow control holds or has let go.
func (m *Machine) InFlight() int { return len(m.queue) }

// Next is when the Machine wants to be woken, for flow control or a scrape. What
// indexes expect of the time comes true before somebody looks.
func (m *Machine) Next() (machine.Time, bool) {
	at, _ := m.scraping.queue.Next()
	if !m.c.Quiet {
		at = min(at, m.p.SendAt())
	}
	if m.fc != nil {
		if t, ok := m.fc.Next(); ok {
			at = min(at, t)
		}
	}
	return at, at != machine.Never
}

// Advance plays everything due by now.
func (m *Machine) Advance(now machine.Time, fx *Effects) {
	m.fx = fx
	m.advance(now)
	m.fx = nil
}

func (m *Machine) advance(now machine.Time) {
	now = max(now, m.now)
	for {
		at, ok := m.Next()
		if !ok || at > now {
			break
		}
		m.now = max(m.now, at)
		m.scrapes()
		m.send()
		if m.fc != nil {
			m.fc.Advance(m.now, &m.flowFx)
			m.play()
		}
	}
	m.now = now
	for _, ix := range m.indexes {
		ix.Advance(now, &m.indexFx)
	}
	m.indexFx.Reset()
}

// Input plays what is due, and takes a message.
func (m *Machine) Input(now machine.Time, msg Message, fx *Effects) {
	m.fx = fx
	m.advance(now)
	m.look(msg)
	if _, later := msg.(KVEvents); !later {
		m.logged(msg)
	}
	switch x := msg.(type) {
	case Arrive:
		m.arrive(x.Request)
	case Answered:
		m.answered(x.Request, x.Answers)
	case Leave:
		m.leave(x.Request)
	case Headers:
		m.respond(x.Request, (*picker.Response).RunHeaderHooks)
	case Piece:
		m.respond(x.Request, (*picker.Response).RunBodyHooks)
	case Done:
		m.done(x.Request)
	case Endpoints:
		m.setEndpoints(x.List)
	case Objects:
		m.setObjects(&x)
	case Scraped:
		m.scraped(&x)
	case KVEvents:
		m.kvEvents(&x)
	case KVLost:
		m.tellIndex(m.indexes[x.Index], kvindex.DropBlocks{Pod: x.Pod})
	case LoseIndexes:
		m.loseIndexes()
	case Shutdown:
		if m.fc != nil {
			m.flow(flowcontrol.Shutdown{})
		}
	}
	m.fx = nil
}

// look has metrics brought for those messages at which plug-ins may read them.
func (m *Machine) look(msg Message) {
	if m.pull == nil {
		return
	}
	switch msg.(type) {
	case Arrive, Answered, Headers, Piece:
		m.pull(m.now)
	case Done:
		if m.hooks.ResponseBody {
			m.pull(m.now)
		}
	}
}

func (m *Machine) emit(e Effect) {
	e.At = m.now
	m.fx.Add(e)
	if m.log != nil && e.Kind != Scrape && e.Kind != Send {
		logged := e // which needs memory of its own, and hardly ever there is a log
		m.log.Effect(&logged)
	}
}

// send has sent what plug-ins want to.
func (m *Machine) send() {
	if m.c.Quiet || m.p.SendAt() > m.now {
		return
	}
	var needs []picker.Need
	if _ = m.p.Guard(nil, func() { needs = m.p.Send(m.now) }); len(needs) > 0 {
		m.emit(Effect{Kind: Send, Needs: needs})
	}
}

// setEndpoints replaces the pool's endpoints.
func (m *Machine) setEndpoints(list []*picker.Endpoint) {
	m.p.Pool().Set(list)
	m.follow()
	m.loads()
}

func (m *Machine) setObjects(o *Objects) {
	m.p.SetObjects(o.Objects)
	if m.fc != nil {
		m.flow(flowcontrol.Objectives{Priorities: o.Priorities})
	}
	if o.KeepEndpoints {
		return
	}
	m.setEndpoints(o.Endpoints)
	if o.Announced != nil {
		m.p.Pool().Announce(o.Announced)
		m.loads()
	}
}

// follow sees to it that what is asked of endpoints is asked of these.
func (m *Machine) follow() {
	view := m.p.Pool().View()
	for _, t := range m.scraping.follow(m.now, view) {
		m.emit(Effect{Kind: Departed, Target: t})
	}
	for i, ix := range m.indexes {
		m.followIndex(i, ix, view)
	}
	m.scrapes()
}
