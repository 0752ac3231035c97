// Package session has the plug-ins that know to which session or conversation a
// request belongs, and keep it where it was.
package session

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/machine/bounded"
)

// named is embedded by every plug-in here.
type named = picker.Base

// sessionParams are the parameters of session-affinity-filter and -scorer.
type sessionParams struct {
	Strategy string `json:"strategy" oneof:"encoded_endpoint_header,session_id"`
	Header   struct {
		Header string `json:"header"`
	} `json:"encodedEndpointHeaderConfig"`
	SessionID struct {
		Sources []struct {
			Header    string `json:"header"`
			Attribute string `json:"attribute"`
			Producer  string `json:"producer"`
		} `json:"sources"`
		TTLSeconds   float64 `json:"evictionTtlSeconds"`
		SweepSeconds float64 `json:"evictionSweepSeconds"`
	} `json:"sessionIdConfig"`
	Profile string `json:"profileName"`
}

const (
	strategyHeader    = "encoded_endpoint_header"
	strategySessionID = "session_id"

	// Of sessions that are remembered. Their ids are the clients' to make up.
	maxSessions     = 1 << 20
	maxSessionBytes = 128 << 20
	sessionBytes    = 160 // of each, besides its texts
)

// memory is something of each session, by its id; of too many what was not
// renewed for longest goes first.
type memory[V any] = bounded.Store[string, V]

func newMemory[V any]() *memory[V] {
	return bounded.New[string, V](bounded.Limits{Entries: maxSessions, Bytes: maxSessionBytes}, nil)
}

// keep remembers v, whose texts have so many bytes.
func keep[V any](m *memory[V], id string, v V, texts int) {
	m.Put(strings.Clone(id), v, len(id)+texts+sessionBytes)
}

// forget drops what is old, as long as the oldest is.
func forget[V any](m *memory[V], old func(V) bool) {
	for id, v, ok := m.Oldest(); ok && old(v); id, v, ok = m.Oldest() {
		m.Delete(id)
	}
}

// session pins the requests of one session to one endpoint. With the strategy
// encoded_endpoint_header the client carries the endpoint's name as a token;
// with session_id the picker remembers it. A memory is swept out when it is
// evictionTtlSeconds old at a turn of the sweep, which runs every
// evictionSweepSeconds from the start on; until then it holds.
type session struct {
	named
	sessionParams
	header     string
	ttl, sweep machine.Time
	bindings   *memory[binding]
}

type binding struct {
	Endpoint string       `json:"endpoint"`
	Seen     machine.Time `json:"seen"`
}

// seenBound records for Commit whether the bound endpoint was a candidate of the last profile that asked.
type seenBound struct{ present bool }

func (s *session) read(p picker.Params) error {
	s.Strategy = strategyHeader
	if err := p.Decode(&s.sessionParams); err != nil {
		return err
	}
	if s.Strategy == strategySessionID {
		for i, src := range s.SessionID.Sources {
			if (src.Header == "") == (src.Attribute == "") {
				return p.At(fmt.Sprintf("sessionIdConfig.sources[%d]", i)).Errorf(
					"header %q and attribute %q; expected exactly one", src.Header, src.Attribute)
			}
		}
		s.SessionID.TTLSeconds = cmp.Or(s.SessionID.TTLSeconds, 300)
		s.SessionID.SweepSeconds = cmp.Or(s.SessionID.SweepSeconds, 10)
		if !(s.SessionID.TTLSeconds > 0 && s.SessionID.TTLSeconds < 1e9) || !(s.SessionID.SweepSeconds > 0) {
			return p.At("sessionIdConfig").Errorf(
				"evictionTtlSeconds %v and evictionSweepSeconds %v; expected both above zero", s.SessionID.TTLSeconds,
				s.SessionID.SweepSeconds)
		}
	}
	s.header = sessionHeader(s.Header.Header)
	s.ttl, s.sweep = config.Seconds(s.SessionID.TTLSeconds), max(config.Seconds(s.SessionID.SweepSeconds), 1)
	s.bindings = newMemory[binding]()
	return nil
}

// sessionID returns the request's session, "" for none.
func (s *session) sessionID(r *picker.Request) string {
	if len(s.SessionID.Sources) == 0 {
		return strings.TrimSpace(r.Headers.Get(picker.HeaderSessionID))
	}
	for _, src := range s.SessionID.Sources {
		v := r.Attributes[src.Attribute]
		if src.Header != "" {
			v = r.Remembered(sessionHeader(src.Header))
		}
		if v = strings.TrimSpace(v); v != "" {
			return v
		}
	}
	return ""
}

// sessionHeader returns the header that a source names.
func sessionHeader(name string) string {
	return cmp.Or(strings.ToLower(strings.TrimSpace(name)), picker.HeaderSessionToken)
}

// ReadsSecrets returns the sources that may be credentials. Of these a digest is the
// session's id.
func (s *session) ReadsSecrets() (names []string) {
	for _, src := range s.SessionID.Sources {
		if src.Header != "" {
			names = append(names, picker.Secrets(sessionHeader(src.Header))...)
		}
	}
	return names
}

// turn returns the sweep's last turn.
func (s *session) turn(now machine.Time) machine.Time { return now / s.sweep * s.sweep }

// bound returns the endpoint of a session, and false for an unknown session.
func (s *session) bound(now machine.Time, id string) (binding, bool) {
	b, ok := s.bindings.Peek(id)
	return b, ok && s.turn(now)-b.Seen <= s.ttl
}

// choose returns the candidate that the session is pinned to, or -1.
func (s *session) choose(c *picker.Cycle, in []int32) int32 {
	if s.Strategy == strategyHeader {
		if b, err := base64.StdEncoding.DecodeString(c.Request.Headers.Get(s.header)); err == nil && len(b) > 0 {
			return find(c, in, string(b))
		}
		return -1
	}
	id := s.sessionID(c.Request)
	if id == "" {
		return -1
	}
	b, ok := s.bound(c.Now, id)
	if !ok {
		return -1
	}
	i := find(c, in, b.Endpoint)
	seen, _ := picker.Data[seenBound](c.Decision, s)
	seen.present = i >= 0
	return i
}

// find returns the candidate with the given "namespace/name", or -1.
func find(c *picker.Cycle, in []int32, id string) int32 {
	for _, i := range in {
		if c.State(i).ID() == id {
			return i
		}
	}
	return -1
}

// Commit binds a new session to its endpoint, and rebinds one whose endpoint was no longer a candidate. A session that
// went elsewhere although its endpoint was a candidate stays bound, and its age does not change.
func (s *session) Commit(now machine.Time, d *picker.Decision) {
	if s.Strategy != strategySessionID {
		return
	}
	id := s.sessionID(d.Request)
	r := d.PrimaryProfile()
	if s.Profile != "" {
		r = d.Profile(s.Profile)
	}
	if id == "" || !r.Ok() {
		return
	}
	t := s.turn(now)
	forget(s.bindings, func(b binding) bool { return t-b.Seen > s.ttl })
	was, ok := s.bound(now, id)
	to := d.View.States[r.Picked[0]].ID()
	if ok && was.Endpoint != to {
		if seen := picker.Peek[seenBound](d, s); seen == nil || seen.present {
			return
		}
	}
	keep(s.bindings, id, binding{to, now}, len(to))
}

// ResponseHeader gives the client its token.
func (s *session) ResponseHeader(_ machine.Time, r *picker.Response) {
	if s.Strategy != strategyHeader || len(r.Decision.Targets) == 0 {
		return
	}
	e := r.Decision.Targets[0].Endpoint
	if s.Profile != "" {
		run := r.Decision.Profile(s.Profile)
		if !run.Ok() {
			return
		}
		e = r.Decision.View.States[run.Picked[0]].Endpoint
	}
	r.SetHeader(s.header, base64.StdEncoding.EncodeToString([]byte(e.ID())))
}

// sessionFilter is session-affinity-filter: only the pinned endpoint, or all if the session has none.
type sessionFilter struct{ session }

// NewFilter makes a session-affinity-filter.
func NewFilter(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	f := &sessionFilter{}
	return f, f.read(p)
}

// Filter keeps the pinned endpoint.
func (f *sessionFilter) Filter(c *picker.Cycle, in []int32) []int32 {
	if i := f.choose(c, in); i >= 0 {
		return append(in[:0], i)
	}
	return in
}

// sessionScorer is session-affinity-scorer: 1 for the pinned endpoint, else 0.
type sessionScorer struct{ session }

// NewScorer makes a session-affinity-scorer.
func NewScorer(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &sessionScorer{}
	return s, s.read(p)
}

// Score prefers the pinned endpoint.
func (s *sessionScorer) Score(c *picker.Cycle, in []int32, scores []float64) {
	pinned := s.choose(c, in)
	for j, i := range in {
		if i == pinned {
			scores[j] = 1
		}
	}
}

// sessionIDProducer is session-id-producer: where the session's id stands.
type sessionIDProducer struct {
	named
	HeaderName string `json:"headerName"`
	CookieName string `json:"cookieName"`
}

// NewIDProducer makes a session-id-producer.
var NewIDProducer = picker.Of(sessionIDProducer{})

// Configure implements picker.Configurer.
func (s *sessionIDProducer) Configure(_ *picker.Builder, _ string, p picker.Params) error {
	s.HeaderName, s.CookieName = strings.ToLower(strings.TrimSpace(s.HeaderName)), strings.TrimSpace(s.CookieName)
	if (s.HeaderName != "") == (s.CookieName != "") {
		return p.Errorf("headerName %q and cookieName %q; expected exactly one", s.HeaderName, s.CookieName)
	}
	return nil
}

// KeySessionID returns the attribute that a session-id-producer of the given name
// publishes.
func KeySessionID(producer string) string { return "SessionIDDataKey/" + producer }

// ProducesOfHeaders implements picker.HeaderProducer.
func (s *sessionIDProducer) ProducesOfHeaders() {}

// ReadsCookie returns the cookie that it reads, if any.
func (s *sessionIDProducer) ReadsCookie() string { return s.CookieName }

// ReadsSecrets is its header, if that may be a credential.
func (s *sessionIDProducer) ReadsSecrets() []string { return picker.Secrets(s.HeaderName) }

// RequestHeader publishes the session's id as an attribute of the request: of a
// cookie, or another header that may be a credential, its digest, since the id is remembered.
func (s *sessionIDProducer) RequestHeader(r *picker.Request) {
	var id string
	if s.CookieName != "" {
		if v, ok := picker.Cookie(r.Headers, s.CookieName); ok {
			id = picker.Digest(v)
		}
	} else {
		id = r.Remembered(s.HeaderName)
	}
	if id = strings.TrimSpace(id); id != "" {
		r.SetAttribute(KeySessionID(s.Name()), id)
	}
}

// Why names what the session is bound to.
func (f *sessionFilter) Why(*picker.Decision, int32) string {
	return "the session belongs to another endpoint"
}
