package plugins

import (
	"encoding/base64"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
)

// sessionParams are the parameters of session-affinity-filter and -scorer.
type sessionParams struct {
	Strategy string `json:"strategy"`
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
	maxSessions       = 1 << 20
)

// session pins the requests of one session to one endpoint. With the strategy
// encoded_endpoint_header the client carries the endpoint's name as a token;
// with session_id the picker remembers it for evictionTtlSeconds.
type session struct {
	sessionParams
	header   string
	ttl      machine.Time
	sweepAt  machine.Time
	bindings map[string]binding
}

type binding struct {
	endpoint string
	seen     machine.Time
}

// seenBound tells Commit whether the bound endpoint was a candidate.
type seenBound struct {
	id      string
	present bool
}

func (s *session) read(p picker.Params, role string) error {
	s.Strategy = strategyHeader
	if err := p.Decode(&s.sessionParams); err != nil {
		return err
	}
	switch s.Strategy {
	case strategyHeader:
	case strategySessionID:
		for i, src := range s.SessionID.Sources {
			if (src.Header == "") == (src.Attribute == "") {
				return p.Errorf("sessionIdConfig.sources[%d]: exactly one of header or attribute must be set", i)
			}
		}
		if s.SessionID.TTLSeconds == 0 {
			s.SessionID.TTLSeconds = 300
		}
		if s.SessionID.SweepSeconds == 0 {
			s.SessionID.SweepSeconds = 10
		}
		if !(s.SessionID.TTLSeconds > 0 && s.SessionID.TTLSeconds < 1e9) || !(s.SessionID.SweepSeconds > 0) {
			return p.Errorf("evictionTtlSeconds and evictionSweepSeconds must be > 0")
		}
	default:
		return p.Errorf("invalid parameters of the %s: strategy must be %q or %q, got %q", role, strategyHeader, strategySessionID, s.Strategy)
	}
	s.header = strings.ToLower(strings.TrimSpace(s.Header.Header))
	if s.header == "" {
		s.header = picker.HeaderSessionToken
	}
	s.ttl = machine.Time(s.SessionID.TTLSeconds * float64(machine.Second))
	s.bindings = map[string]binding{}
	return nil
}

// sessionID is the request's session, "" for none.
func (s *session) sessionID(r *picker.Request) string {
	if len(s.SessionID.Sources) == 0 {
		v, _ := r.Headers.Get(picker.HeaderSessionID)
		return strings.TrimSpace(v)
	}
	for _, src := range s.SessionID.Sources {
		name := strings.ToLower(src.Header)
		if name == "" {
			name = picker.HeaderSessionID // the attribute that session-id-producer publishes
		}
		if v, _ := r.Headers.Get(name); strings.TrimSpace(v) != "" {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// choose is the candidate that the session is pinned to, or -1.
func (s *session) choose(c *picker.Cycle, p picker.Plugin, in []int32) int32 {
	var want string
	if s.Strategy == strategyHeader {
		token, _ := c.Request.Headers.Get(s.header)
		if b, err := base64.StdEncoding.DecodeString(token); err == nil {
			want = string(b)
		}
	} else {
		id := s.sessionID(c.Request)
		b, ok := s.bindings[id]
		if id == "" {
			return -1
		}
		seen, fresh := picker.Data[seenBound](c.Decision, p)
		if fresh {
			*seen = seenBound{}
		}
		seen.id = id
		if ok && c.Now-b.seen < s.ttl {
			want = b.endpoint
		}
	}
	if want == "" {
		return -1
	}
	for _, i := range in {
		if c.State(i).ID() == want {
			if s.Strategy == strategySessionID {
				seen, _ := picker.Data[seenBound](c.Decision, p)
				seen.present = true
			}
			return i
		}
	}
	return -1
}

// commit binds a new session, or one whose endpoint is gone, to where it went.
func (s *session) commit(now machine.Time, d *picker.Decision, p picker.Plugin) {
	seen := picker.Peek[seenBound](d, p)
	if s.Strategy != strategySessionID || seen == nil || seen.id == "" {
		return
	}
	r := d.PrimaryProfile()
	if s.Profile != "" {
		r = d.Profile(s.Profile)
	}
	if !r.Ok() {
		return
	}
	if now >= s.sweepAt {
		for id, b := range s.bindings {
			if now-b.seen >= s.ttl {
				delete(s.bindings, id)
			}
		}
		s.sweepAt = now + machine.Time(s.SessionID.SweepSeconds*float64(machine.Second))
	}
	b, ok := s.bindings[seen.id]
	if !ok && len(s.bindings) >= maxSessions {
		return
	}
	if !ok || !seen.present {
		b.endpoint = d.View.States[r.Picked[0]].ID()
	}
	b.seen = now
	s.bindings[seen.id] = b
}

// respond hands the client its token.
func (s *session) respond(r *picker.Response) {
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

// sessionFilter is session-affinity-filter: only the pinned endpoint, or all
// when there is none.
type sessionFilter struct {
	named
	session
}

func newSessionFilter(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	f := &sessionFilter{named: base("session-affinity-filter", name)}
	return f, f.read(p, "'session-affinity-filter' filter")
}

// Filter keeps the pinned endpoint.
func (f *sessionFilter) Filter(c *picker.Cycle, in []int32) []int32 {
	if i := f.choose(c, f, in); i >= 0 {
		return append(in[:0], i)
	}
	return in
}

// Commit remembers the session.
func (f *sessionFilter) Commit(now machine.Time, d *picker.Decision) { f.commit(now, d, f) }

// ResponseHeader hands out the token.
func (f *sessionFilter) ResponseHeader(_ machine.Time, r *picker.Response) { f.respond(r) }

// sessionScorer is session-affinity-scorer: 1 for the pinned endpoint, else 0.
type sessionScorer struct {
	named
	session
}

func newSessionScorer(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &sessionScorer{named: base("session-affinity-scorer", name)}
	return s, s.read(p, "'session-affinity-scorer' scorer")
}

// Score prefers the pinned endpoint.
func (s *sessionScorer) Score(c *picker.Cycle, in []int32, scores []float64) {
	pinned := s.choose(c, s, in)
	for j, i := range in {
		if i == pinned {
			scores[j] = 1
		}
	}
}

// Commit remembers the session.
func (s *sessionScorer) Commit(now machine.Time, d *picker.Decision) { s.commit(now, d, s) }

// ResponseHeader hands out the token.
func (s *sessionScorer) ResponseHeader(_ machine.Time, r *picker.Response) { s.respond(r) }

// sessionIDProducer is session-id-producer: where the session's id stands.
type sessionIDProducer struct {
	named
	HeaderName string `json:"headerName"`
	CookieName string `json:"cookieName"`
}

func newSessionID(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &sessionIDProducer{named: base("session-id-producer", name)}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	s.HeaderName, s.CookieName = strings.ToLower(strings.TrimSpace(s.HeaderName)), strings.TrimSpace(s.CookieName)
	if (s.HeaderName != "") == (s.CookieName != "") {
		return nil, p.Errorf("exactly one of headerName or cookieName must be set")
	}
	return s, nil
}

// RequestHeader publishes the session's id as x-session-id, unless the client
// sent one.
func (s *sessionIDProducer) RequestHeader(r *picker.Request) {
	if _, ok := r.Headers.Get(picker.HeaderSessionID); ok {
		return
	}
	var id string
	if s.CookieName != "" {
		cookies, _ := r.Headers.Get("cookie")
		for part := range strings.SplitSeq(cookies, ";") {
			if k, v, ok := strings.Cut(strings.TrimSpace(part), "="); ok && k == s.CookieName {
				id = v
			}
		}
	} else if s.HeaderName != "" {
		id, _ = r.Headers.Get(strings.ToLower(s.HeaderName))
	}
	if id != "" {
		r.Headers = append(r.Headers, picker.Header{Name: picker.HeaderSessionID, Value: id})
	}
}
