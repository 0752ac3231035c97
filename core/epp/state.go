package epp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
)

// State holds what a Machine knows besides its configuration, in a form that JSON
// can carry: what Load needs so that another one of the same configuration goes
// on from there.
type State struct {
	At       machine.Time       `json:"at"`
	Serial   uint64             `json:"serial"`
	Picker   picker.Saved       `json:"picker"`
	Scrapes  []scrapes          `json:"scrapes,omitempty"`
	Flow     *flowcontrol.Saved `json:"flow,omitempty"`
	Numbers  uint64             `json:"numbers,omitempty"` // that flow control has seen
	Indexes  []savedKVIndex     `json:"indexes,omitempty"`
	Requests []savedRequest     `json:"requests,omitempty"` // that are not over, the oldest first
}

// scrapes hold what the data sources know of an endpoint.
type scrapes struct {
	Endpoint string        `json:"endpoint"`
	Sources  []savedSource `json:"sources"`
}

type savedSource struct {
	Current bool         `json:"current,omitempty"`
	Last    machine.Time `json:"last"`
}

type savedKVIndex struct {
	Index  *kvindex.Saved `json:"index"`
	Block  int            `json:"block"` // tokens
	Warned map[string]int `json:"warned,omitempty"`
}

// savedRequest is a request that is not over. Content is what whoever saves knows
// how to write, and Load's caller how to read.
type savedRequest struct {
	Serial    uint64          `json:"serial"`
	Content   json.RawMessage `json:"content,omitempty"`
	State     requestState    `json:"state"`
	ArrivedAt machine.Time    `json:"arrivedAt"`
	Number    uint64          `json:"number,omitempty"`
	Evictable bool            `json:"evictable,omitempty"`
	Admission string          `json:"admission,omitempty"`

	Model       string            `json:"model,omitempty"`
	TargetModel string            `json:"targetModel,omitempty"`
	Rewrite     string            `json:"rewrite,omitempty"`
	Objective   string            `json:"objective,omitempty"`
	Priority    int               `json:"priority,omitempty"`
	Fairness    string            `json:"fairness,omitempty"`
	TTFTMs      machine.Float     `json:"ttftMs,omitempty"`
	TPOTMs      machine.Float     `json:"tpotMs,omitempty"`
	Tokens      int               `json:"tokens,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`

	Decision *picker.SavedDecision `json:"decision,omitempty"`
	Response *picker.SavedResponse `json:"response,omitempty"` // once it was the Machine's turn
}

// Content holds what a saved request's content says.
type Content struct {
	Request *picker.Request
	Answers []picker.Answer
	// Response makes the response again, if it was the Machine's turn.
	Response func(d *picker.Decision) *picker.Response
}

// Save copies the Machine's state, in its turn. content writes what is not the
// Machine's own of a request: of one that is Placed no more than what its
// response needs, since its prompts are its Stream's then.
func (m *Machine) Save(content func(r *Request) []byte) *State {
	s := &State{At: m.now, Serial: m.serial, Picker: m.p.Save(), Numbers: uint64(m.numbers)}
	for _, id := range slices.Sorted(maps.Keys(m.scraping.targets)) {
		x := scrapes{Endpoint: id}
		for _, src := range m.scraping.targets[id].sources {
			x.Sources = append(x.Sources, savedSource{src.current, src.last})
		}
		s.Scrapes = append(s.Scrapes, x)
	}
	if m.fc != nil {
		m.fc.Advance(m.now, &m.flowFx) // nothing is due; it notes the time
		s.Flow = m.fc.Save()
	}
	for _, ix := range m.indexes {
		ix.Advance(m.now, &m.indexFx) // one that was made anew has yet to learn the time
		m.indexFx.Reset()
		s.Indexes = append(s.Indexes, savedKVIndex{ix.Save(), ix.block, maps.Clone(ix.warned)})
	}
	for r := m.flying; r != nil; r = r.prev {
		if r.state == ended {
			s.Requests = append(s.Requests, savedRequest{Serial: r.Serial, State: ended})
			continue
		}
		if r.Serial == 0 { // it came before anybody wrote down what came
			m.serial++
			r.Serial, s.Serial = m.serial, m.serial
		}
		s.Requests = append(s.Requests, m.saveRequest(r, content(r)))
	}
	slices.Reverse(s.Requests)
	return s
}

func (m *Machine) saveRequest(r *Request, content []byte) savedRequest {
	s := savedRequest{Serial: r.Serial, Content: content, State: r.state, ArrivedAt: r.ArrivedAt,
		Number: uint64(r.number), Evictable: r.evictable, Admission: r.admission,
		Model: r.Model, TargetModel: r.TargetModel, Rewrite: r.Rewrite, Objective: r.Objective.Name,
		Priority: r.Objective.Priority, Fairness: r.FairnessID,
		TTFTMs: machine.Float(r.TTFTMs), TPOTMs: machine.Float(r.TPOTMs), Tokens: r.Tokens,
		Attributes: maps.Clone(r.Attributes)}
	if r.state == decided {
		s.Decision = m.p.SaveDecision(r.Decision)
	}
	if r.seen != nil {
		s.Response = r.seen.Save()
	}
	return s
}

// Load takes a state over, before the first message. read reads what Save's
// content wrote; tell is told of each request that is not over. Everything is
// scraped at once. A Machine that is Told may have another configuration than the
// one that was saved: it takes over what it has a place for.
func (m *Machine) Load(s *State, fx *Effects, read func(content []byte) (Content, error), tell func(*Request)) error {
	m.fx, m.now, m.serial, m.numbers = fx, s.At, s.Serial, flowcontrol.RequestID(s.Numbers)
	defer func() { m.fx = nil }()
	if err := m.p.Load(&s.Picker, m.c.Told); err != nil {
		return err
	}
	m.follow()
	for _, x := range s.Scrapes {
		t := m.scraping.targets[x.Endpoint]
		for i := 0; t != nil && i < min(len(x.Sources), len(t.sources)); i++ {
			t.sources[i].current, t.sources[i].last = x.Sources[i].Current, x.Sources[i].Last
		}
	}
	if len(s.Indexes) != len(m.indexes) && !m.c.Told {
		return fmt.Errorf("it has %d indexes of KV blocks, and the picker %d", len(s.Indexes), len(m.indexes))
	}
	for i, x := range s.Indexes[:min(len(s.Indexes), len(m.indexes))] {
		if m.c.Told && m.indexes[i].block != x.Block {
			continue
		}
		if x.Index == nil {
			return fmt.Errorf("index %d of KV blocks is missing", i)
		}
		if err := m.indexes[i].Load(x.Index); err != nil {
			return fmt.Errorf("index %d of KV blocks: %w", i, err)
		}
		maps.Copy(m.indexes[i].warned, x.Warned)
	}
	for i := range s.Requests {
		r, err := m.loadRequest(&s.Requests[i], read)
		if err != nil {
			return fmt.Errorf("request number %d: %w", s.Requests[i].Serial, err)
		}
		tell(r)
	}
	if m.c.Told {
		return nil
	}
	if (s.Flow == nil) != (m.fc == nil) {
		return errors.New("one of state and picker has flow control, and the other has not")
	}
	if m.fc != nil {
		m.fc.Load(s.Flow)
	}
	return nil
}

func (m *Machine) loadRequest(s *savedRequest, read func([]byte) (Content, error)) (*Request, error) {
	if s.State == ended {
		r := &Request{Serial: s.Serial}
		r.early()
		m.link(r)
		return r, nil
	}
	c, err := read(s.Content)
	if err != nil {
		return nil, err
	}
	r := &Request{Request: c.Request, Answers: c.Answers, ArrivedAt: s.ArrivedAt, Serial: s.Serial, state: s.State,
		number:    flowcontrol.RequestID(s.Number),
		evictable: s.Evictable, admission: s.Admission}
	r.Model, r.TargetModel, r.Rewrite, r.FairnessID = s.Model, s.TargetModel, s.Rewrite, s.Fairness
	r.Objective = picker.Objective{Name: s.Objective, Priority: s.Priority}
	r.TTFTMs, r.TPOTMs, r.Tokens, r.Attributes = float64(s.TTFTMs), float64(s.TPOTMs), s.Tokens,
		maps.Clone(s.Attributes)
	switch {
	case s.State != asking && s.State != consulting && s.State != queued && s.State != decided,
		s.State == queued && s.Number == 0, s.State == decided && s.Decision == nil:
		return nil, errors.New("it is neither under way nor over")
	case s.State == decided:
		if r.Decision, err = m.p.LoadDecision(s.Decision, r.Request, m.c.Told); err != nil {
			return nil, err
		}
		r.Decision.Admission = s.Admission
	}
	if s.Response != nil && c.Response != nil && r.Decision != nil {
		r.Response = c.Response(r.Decision)
		r.Response.Load(s.Response)
		r.seen, r.Err = r.Response, r.Response.Err
	}
	switch {
	case m.c.Told && (r.state == queued || r.state == consulting):
		r.state, r.number = told, 0
	case m.c.Told:
		r.number = 0
	case r.number > 0:
		m.queue[r.number] = r
	}
	m.link(r)
	return r, nil
}

// link notes a request that is not over.
func (m *Machine) link(r *Request) {
	if r.linked {
		return
	}
	r.linked, r.prev = true, m.flying
	if m.flying != nil {
		m.flying.next = r
	}
	m.flying = r
}

// unlink forgets one that is.
func (m *Machine) unlink(r *Request) {
	if !r.linked {
		return
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		m.flying = r.prev
	}
	if r.prev != nil {
		r.prev.next = r.next
	}
	r.linked, r.prev, r.next = false, nil, nil
}
