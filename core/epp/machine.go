package epp

import (
	"cmp"
	"fmt"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Config holds an endpoint picker's parts and options.
type Config struct {
	// Picker holds the plug-ins. The Machine owns it.
	Picker *picker.Picker
	// Stream is the configuration that all streams share.
	Stream stream.Config
	// EmitScores puts the scores into the dynamic metadata (--emit-endpoint-scores).
	EmitScores bool
	// RecordOnly states that only the record of a decision is read. Then no dynamic metadata is made, and the decision
	// drops the endpoints that it did not choose (picker.Picker.Strip), unless its response explains it.
	RecordOnly bool
	// DocumentHeaders adds the destination headers of documents 002 and 003 (docs/documents.md) to the request and the
	// response.
	DocumentHeaders bool
	// ExplainHeaders adds the reasons to every response, as picker.HeaderExplain does for one request. It includes
	// DocumentHeaders.
	ExplainHeaders bool
	// Explain adds the reasons of a decision to the record of its request, with so many endpoints in each list; 0 adds
	// none.
	Explain int
	// History is how many decisions are kept for people; 0 keeps none.
	History int
	// Describe makes requests describe enough of themselves to be replayed from a log, whatever the plug-ins read.
	Describe bool
	// Follows makes requests wait for Machine.Follow, which brings another picker's decision. Such a Machine has no
	// flow control.
	Follows bool
	// Quiet sends no requests to endpoints or services: the replay of a log brings their answers.
	Quiet bool
	// ScrapeInterval applies to data sources without an interval of their own. 0 is DefaultScrapeInterval.
	ScrapeInterval machine.Time
	// Replica is this picker's number from 0 among Replicas, which spread their scrapes over the interval. Replicas 0
	// or 1 is one picker.
	Replica, Replicas int
}

// describedTokens is how much of a prompt a log describes: as much as an approximate index compares.
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
	fx  *Effects // the caller's buffer, during a call

	fc        *flowcontrol.Controller // nil without flow control
	flowFx    machine.Effects[flowcontrol.Effect]
	queue     map[flowcontrol.RequestID]*Request
	numbers   flowcontrol.RequestID
	playing   bool // play is running
	evicts    bool // flow control may evict requests with a priority below 0
	affine    []affine
	hooks     picker.Hooks
	scraping  scraping
	pull      func(now machine.Time) // updates metrics instead of scrapes; may be nil
	indexes   []*index
	indexFx   kvindex.Effects
	kvMessage kvindex.Events
	decisions decisions
	observed  *observed // nil where nobody reads metrics
	evicted   bool      // flow control has evicted a request

	log        Log
	serial     uint64   // of requests, in the log
	unfinished *Request // the newest request that is not over
}

// affine is a plug-in that binds sessions to endpoints.
type affine interface {
	picker.Plugin
	Affinity() (hits, misses int64)
}

// New makes the machine, without endpoints.
func New(c Config) (*Machine, error) {
	c.ScrapeInterval = cmp.Or(max(c.ScrapeInterval, 0), DefaultScrapeInterval)
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
	if m.p.FlowControl() && !c.Follows {
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

// Now returns the time of the last Input or Advance.
func (m *Machine) Now() machine.Time { return m.now }

// Picker returns the picker. The caller reads it during the Machine's turn.
func (m *Machine) Picker() *picker.Picker { return m.p }

// FlowControl returns the flow control, nil without one. The caller reads it during the Machine's turn.
func (m *Machine) FlowControl() *flowcontrol.Controller { return m.fc }

// InFlight returns how many requests flow control holds or has released.
func (m *Machine) InFlight() int { return len(m.queue) }

// Next returns the next time at which flow control, a scrape or a report of a plug-in is due. Indexes need no wake-up:
// they apply what is due before anyone reads them.
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
	m.pullFor(msg)
	if _, later := msg.(KVEvents); !later {
		m.logged(msg)
	}
	msg.apply(m)
	m.fx = nil
}

// pullFor updates metrics before those messages at which plug-ins may read them.
func (m *Machine) pullFor(msg Message) {
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
		logged := e // a copy, so that e stays on the stack without a log
		m.log.Effect(&logged)
	}
}

// send emits the messages that plug-ins want to send.
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
	m.followEndpoints()
	m.loads()
}

func (m *Machine) setObjects(o *Objects) {
	m.p.SetObjects(o.Objects)
	m.flow(flowcontrol.Objectives{Priorities: o.Priorities})
	if o.KeepEndpoints {
		return
	}
	m.setEndpoints(o.Endpoints)
	if o.Announced != nil {
		m.p.Pool().Announce(o.Announced)
		m.loads()
	}
}

// followEndpoints starts scraping and KV events for the pool's new endpoints and ends them for those that left.
func (m *Machine) followEndpoints() {
	view := m.p.Pool().View()
	for _, t := range m.scraping.follow(m.now, view) {
		m.emit(Effect{Kind: Departed, Target: t})
	}
	for i, ix := range m.indexes {
		m.followIndex(i, ix, view)
	}
	m.scrapes()
}
