package virtual

import (
	"strconv"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/serving"
	"github.com/windtunnel/windtunnel/core/tokens"
)

// server is one model server: its engine and the requests in it.
type server struct {
	slot[engine.Message, *engine.Effects]

	index    int
	name     string
	endpoint string
	sidecar  *sidecar // before a decode server
	engine   *engine.Engine
	fx       engine.Effects
	requests map[engine.RequestID]*request
	holds    map[uint64]bool                  // handles of blocks that others may fetch
	named    map[string]uint64                // handles by the key that others ask by
	keys     map[uint64]string                // and those keys
	waiting  map[string][]*pull               // who asks for what is not computed yet
	fetched  *simplelru.LRU[string, struct{}] // document 002's handles that were
	kv       kvOutbox
	steps    serving.EngineSteps
	stats    serverStats
	killed   error // why it does not fit into its memory, if so
	dead     bool  // it crashed, or lost a rank
}

func statusText(status int) string { return strconv.Itoa(status) }

// maxFetched is how many handles a server remembers, as a live one.
const maxFetched = 10_000

// submit gives a request to the engine.
func (s *server) submit(r *request) {
	if s.killed != nil {
		r.do(r.session.Rejected(s.w.now, 503, "OOMKilled: "+s.killed.Error()))
		return
	}
	s.w.nextID++
	r.id = s.w.nextID
	s.requests[r.id] = r
	a := r.asks()
	s.submitted(r)
	r.seq = stats.Sequence{PromptTokens: max(1, len(a.prompt)), MaxTokens: a.max, Adapter: a.lora, EveryToken: r.watched(), Arrived: s.w.now}
	m := &engine.Submit{ID: r.id, PromptTokens: max(1, len(a.prompt)), MaxTokens: a.max, StopAfter: s.w.draws.Tokens(r.ID, 0),
		Adapter: a.adapter, HoldAfterFirst: r.session.Held(), HoldKV: a.hold, Remote: a.remote}
	if m.MaxTokens > 0 && m.StopAfter >= m.MaxTokens {
		m.StopAfter = 0 // the limit is reached first
	}
	if a.handle != "" { // the first use fetches it; later ones find it in the prefix cache
		if _, known := s.fetched.Get(a.handle); known {
			m.Remote = engine.RemoteKV{}
		}
		s.fetched.Add(a.handle, struct{}{})
	}
	if r.watched() {
		m.Interest = engine.EveryToken
	}
	if cfg := s.engine.Config(); cfg.Batching == engine.BatchingIndependent {
		m.PrefillTime, m.TokenTime = s.w.draws.PrefillTime(r.ID), s.w.draws.InterTokenTime(r.ID)
	} else if !cfg.DisablePrefixCaching {
		m.Hashes = s.hashes(r, m)
		s.stockpiled(r, m)
	}
	s.input(m)
}

// stockpiled lets a request begin with blocks that the external cache has.
func (s *server) stockpiled(r *request, m *engine.Submit) {
	x := s.w.wires
	if x == nil || !x.profile.ViaStore || m.Remote.Tokens > 0 {
		return
	}
	block := s.engine.Config().BlockSize
	r.stores = m.Hashes[:m.PromptTokens/block]
	n, writer := x.store.Find(r.stores, s.index)
	if n > 0 {
		r.stored, r.writer = true, writer
		m.Remote = engine.RemoteKV{From: engine.EngineID(s.index), Tokens: min(n*block, m.PromptTokens)}
	}
}

// prefilled puts a prompt's blocks into the external cache.
func (r *request) prefilled() {
	if r.stores != nil {
		r.w.wires.store.Put(r.stores, r.server.index)
		r.stores = nil
	}
}

// hashes names the blocks of a prompt and, where somebody may go on from the
// answer, of that too.
func (s *server) hashes(r *request, m *engine.Submit) []uint64 {
	a, block := r.asks(), s.engine.Config().BlockSize
	salt := uint64(0)
	if a.adapter != 0 { // adapters share no blocks
		d := machine.DrawFor(uint64(a.adapter), "server", "salt", "")
		salt = d.Uint64()
	}
	list := engine.BlockHashes(nil, salt, a.prompt, block)
	if !s.w.verbose {
		return list
	}
	out := m.MaxTokens
	if m.StopAfter > 0 {
		out = m.StopAfter
	}
	total := min(len(a.prompt)+out, s.engine.Config().MaxModelLen)
	if total/block == len(list) {
		return list
	}
	if len(list) > 0 {
		salt = list[len(list)-1]
	}
	whole := len(list) * block
	return engine.BlockHashes(list, salt, r.tokenIDs(whole, total-whole), block)
}

// tokenIDs are tokens of the request's prompt and of its answer behind it.
func (r *request) tokenIDs(first, count int) []uint32 {
	prompt, base := r.asks().prompt, tokens.Answer(r.w.draws.Seed, r.ID)
	out := make([]uint32, 0, count)
	for i := first; i < first+count; i++ {
		if i < len(prompt) {
			out = append(out, prompt[i])
			continue
		}
		id, _ := r.w.voc.Pick(base, i-len(prompt))
		out = append(out, id)
	}
	return out
}

func (s *server) effect(e engine.Effect) {
	s.count(&e)
	switch e.Kind {
	case engine.Stepped:
		s.steps.Record(&s.fx, &e)
		return
	case engine.BlockStored, engine.BlockRemoved, engine.AllBlocksCleared:
		s.announce(&e)
		return
	case engine.KVHeld, engine.KVFreed, engine.KVPull, engine.KVRelease:
		s.transfer(&e)
		return
	case engine.Finished, engine.Rejected, engine.Aborted:
		s.kv.over = append(s.kv.over, e.Request)
	}
	r := s.requests[e.Request]
	if r == nil {
		return
	}
	switch e.Kind {
	case engine.PrefillStarted:
		if !r.scheduled { // it comes again after a preemption
			r.scheduled, r.cached = true, int(e.Count)
			r.session.PrefillStarted(e.At, flow.D("cached_tokens", r.cached))
			r.prefilling()
		}
	case engine.FirstToken:
		r.prefilled()
		r.firstTokenMade(e.At)
	case engine.Tokens:
		r.counted(int(e.First) + int(e.Count))
	case engine.Finished:
		delete(s.requests, e.Request)
		r.prefilled()
		r.finished(&e)
	case engine.Rejected:
		delete(s.requests, e.Request)
		told := serving.Rejection(e.Code, r.asks().lora)
		r.do(r.session.Rejected(s.w.now, told.Status, told.Message))
	case engine.Aborted:
		delete(s.requests, e.Request)
	}
}

// finished is the engine's end of a request.
func (r *request) finished(e *engine.Effect) {
	if r.silent {
		return
	}
	switch e.Reason {
	case engine.ReasonStop, engine.ReasonLength:
	default:
		status, text := serving.Failure(e.Reason)
		r.do(r.session.Failed(e.At, status, text))
		return
	}
	r.tokens, r.reason = int(e.Count), e.Reason.String()
	if f := r.fault.ResetAfter; f != nil && r.tokens >= *f && r.asks().stream {
		r.counted(r.tokens)
		return
	}
	r.do(r.session.Generated(e.At, r.tokens, r.reason))
}
