package virtual

import (
	"strconv"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/serving"
	"github.com/windtunnel/windtunnel/core/tokens"
)

// server is one model server: its engine and the requests in it.
type server struct {
	slot[enginecore.Message, *enginecore.Effects]

	index    int
	name     string
	endpoint string
	sidecar  *sidecar // before a decode server
	core     *enginecore.Core
	engine   *engine.Engine // the core's
	calls    map[enginecore.Call]peer
	fetched  *simplelru.LRU[string, struct{}] // document 002's handles that were
	kv       kvOutbox
	steps    serving.EngineSteps
	told     stats.Server // in the metrics
	pages    []page       // by data source
}

func statusText(status int) string { return strconv.Itoa(status) }

// maxFetched is how many handles a server remembers, as a live one.
const maxFetched = 10_000

// submit gives a request to the engine.
func (s *server) submit(r *request) {
	if why := s.core.Refuses(s.w.now); why != "" {
		r.do(r.session.Rejected(s.w.now, 503, why))
		return
	}
	s.w.nextID++
	a, q := r.asks(), &r.seq
	prompt := max(1, len(a.prompt))
	*q = enginecore.Sequence{Owner: r, Key: a.key, Remote: a.remote, LoseKV: r.fault.LoseKV,
		Counted: stats.Sequence{PromptTokens: prompt, MaxTokens: a.max, Adapter: a.lora, EveryToken: r.watched()},
		Submit: engine.Submit{ID: s.w.nextID, PromptTokens: prompt, MaxTokens: a.max, StopAfter: s.w.draws.Tokens(r.ID, 0),
			Adapter: a.adapter, HoldAfterFirst: r.session.Held(), HoldKV: a.hold}}
	m := &q.Submit
	if m.MaxTokens > 0 && m.StopAfter >= m.MaxTokens {
		m.StopAfter = 0 // the limit is reached first
	}
	if a.handle != "" { // the first use fetches it; later ones find it in the prefix cache
		if _, known := s.fetched.Get(a.handle); known {
			q.Remote = nil
		}
		s.fetched.Add(a.handle, struct{}{})
	}
	if r.watched() {
		m.Interest = engine.EveryToken
	}
	if s.w.kv != nil {
		q.Tokens = r.tokenIDs
	}
	cfg := s.engine.Config()
	if cfg.Batching == engine.BatchingIndependent {
		m.PrefillTime, m.TokenTime = s.w.draws.PrefillTime(r.ID), s.w.draws.InterTokenTime(r.ID)
	} else if !cfg.DisablePrefixCaching {
		m.Hashes = s.hashes(r, m)
	}
	if s.core.Config().ViaStore && m.Hashes == nil {
		q.Prefix = s.hashes(r, m)
	}
	s.input(enginecore.Submit{Sequence: q})
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

func (s *server) effect(e enginecore.Effect) {
	if e.Do != nil {
		s.act(e.Do)
		return
	}
	f := *s.fx.OfEngine(&e) // what is said of it may move the list
	if f.Kind == engine.Stepped {
		s.steps.Record(&s.fx.Engine, &f)
	}
	if e.Sequence == nil {
		return
	}
	r := e.Sequence.Owner.(*request)
	switch f.Kind {
	case engine.PrefillStarted:
		if !r.scheduled { // it comes again after a preemption
			r.scheduled, r.cached = true, int(f.Count)
			r.session.PrefillStarted(f.At, flow.D("cached_tokens", r.cached))
			r.prefilling()
		}
	case engine.FirstToken:
		r.firstTokenMade(f.At)
	case engine.Tokens:
		r.counted(int(f.First) + int(f.Count))
	case engine.Finished:
		r.finished(&f)
	case engine.Rejected:
		told := serving.Rejection(f.Code, r.asks().lora)
		r.do(r.session.Rejected(s.w.now, told.Status, told.Message))
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
