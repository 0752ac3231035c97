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

// State is a Machine's state without its configuration, as JSON. Load continues from it in another Machine of the same
// configuration.
type State struct {
	At       machine.Time       `json:"at"`
	Serial   uint64             `json:"serial"`
	Picker   picker.Saved       `json:"picker"`
	Scrapes  []scrapes          `json:"scrapes,omitempty"`
	Flow     *flowcontrol.Saved `json:"flow,omitempty"`
	Numbers  uint64             `json:"numbers,omitempty"` // requests that flow control has seen
	Indexes  []savedKVIndex     `json:"indexes,omitempty"`
	Requests []savedRequest     `json:"requests,omitempty"` // not over, the oldest first
}

// scrapes holds the data sources' state at an endpoint.
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

// savedRequest is a request that is not over. The callers of Save and Load write and read its Content.
type savedRequest struct {
	Serial    uint64          `json:"serial"`
	Content   json.RawMessage `json:"content,omitempty"`
	State     requestState    `json:"state"`
	ArrivedAt machine.Time    `json:"arrivedAt"`
	Number    uint64          `json:"number,omitempty"`
	Evictable bool            `json:"evictable,omitempty"`
	Admission string          `json:"admission,omitempty"`

	picker.Prepared

	Decision *picker.SavedDecision `json:"decision,omitempty"`
	Response *picker.SavedResponse `json:"response,omitempty"` // once the Machine has seen it
}

// Content is the decoded content of a saved request.
type Content struct {
	Request *picker.Request
	Answers []picker.Answer
	// Response creates the response again, if the Machine had seen it.
	Response func(d *picker.Decision) *picker.Response
}

// Save copies the Machine's state; the caller holds the Machine's turn. content writes the part of a request that the
// Machine does not own. Of a Placed request it writes only what its response needs, since its Stream owns the prompt.
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
		ix.Advance(m.now, &m.indexFx) // an index that was just created does not have the time yet
		m.indexFx.Reset()
		s.Indexes = append(s.Indexes, savedKVIndex{ix.Save(), ix.block, maps.Clone(ix.warned)})
	}
	for r := m.unfinished; r != nil; r = r.prev {
		if r.state == ended {
			s.Requests = append(s.Requests, savedRequest{Serial: r.Serial, State: ended})
			continue
		}
		if r.Serial == 0 { // it came before the log
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
		Prepared: r.Prepared}
	s.Attributes = maps.Clone(r.Attributes)
	if r.state == decided {
		s.Decision = m.p.SaveDecision(r.Decision)
	}
	if r.seen != nil {
		s.Response = r.seen.Save()
	}
	return s
}

// Load restores a state before the first message. read decodes Save's content. Load calls each with every request that
// is not over. All endpoints are scraped at once. A Machine that Follows may have another configuration than the saved
// one; it restores what fits.
func (m *Machine) Load(s *State, fx *Effects, read func(content []byte) (Content, error), each func(*Request)) error {
	m.fx, m.now, m.serial, m.numbers = fx, s.At, s.Serial, flowcontrol.RequestID(s.Numbers)
	defer func() { m.fx = nil }()
	if err := m.p.Load(&s.Picker, m.c.Follows); err != nil {
		return err
	}
	m.followEndpoints()
	for _, x := range s.Scrapes {
		t := m.scraping.targets[x.Endpoint]
		for i := 0; t != nil && i < min(len(x.Sources), len(t.sources)); i++ {
			t.sources[i].current, t.sources[i].last = x.Sources[i].Current, x.Sources[i].Last
		}
	}
	if len(s.Indexes) != len(m.indexes) && !m.c.Follows {
		return fmt.Errorf("it has %d indexes of KV blocks, and the picker %d", len(s.Indexes), len(m.indexes))
	}
	for i, x := range s.Indexes[:min(len(s.Indexes), len(m.indexes))] {
		if m.c.Follows && m.indexes[i].block != x.Block {
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
		each(r)
	}
	if m.c.Follows {
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
	r.Prepared, r.Attributes = s.Prepared, maps.Clone(s.Attributes)
	switch {
	case s.State != asking && s.State != consulting && s.State != queued && s.State != decided,
		s.State == queued && s.Number == 0, s.State == decided && s.Decision == nil:
		return nil, errors.New("it is neither under way nor over")
	case s.State == decided:
		if r.Decision, err = m.p.LoadDecision(s.Decision, r.Request, m.c.Follows); err != nil {
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
	case m.c.Follows && (r.state == queued || r.state == consulting):
		r.state, r.number = following, 0
	case m.c.Follows:
		r.number = 0
	case r.number > 0:
		m.queue[r.number] = r
	}
	m.link(r)
	return r, nil
}

// link adds a request to the unfinished ones.
func (m *Machine) link(r *Request) {
	if r.linked {
		return
	}
	r.linked, r.prev = true, m.unfinished
	if m.unfinished != nil {
		m.unfinished.next = r
	}
	m.unfinished = r
}

// unlink removes a request that is over.
func (m *Machine) unlink(r *Request) {
	if !r.linked {
		return
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		m.unfinished = r.prev
	}
	if r.prev != nil {
		r.prev.next = r.next
	}
	r.linked, r.prev, r.next = false, nil, nil
}
