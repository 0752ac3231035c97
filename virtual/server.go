package virtual

import (
	"strconv"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/serving"
	"github.com/windtunnel/windtunnel/core/tokens"
)

// server is one model server: its engine and the requests in it.
type server struct {
	w        *world
	index    int
	name     string
	endpoint string
	engine   *engine.Engine
	fx       engine.Effects
	draining bool // effects are being played; new ones join the list
	requests map[engine.RequestID]*request
	wakeAt   machine.Time
	kv       kvOutbox
	steps    serving.EngineSteps
	killed   error // why it does not fit into its memory, if so
}

func statusText(status int) string { return strconv.Itoa(status) }

// statusOf is the HTTP status of an engine's refusal, as a live server answers.
func statusOf(code engine.Code) int {
	switch code {
	case engine.CodeUnknownAdapter:
		return 404
	case engine.CodeAsleep, engine.CodeDraining, engine.CodeDead:
		return 503
	case engine.CodeFull:
		return 429
	}
	return 400
}

// submit gives a request to the engine.
func (s *server) submit(r *request) {
	if s.killed != nil {
		r.do(r.session.Rejected(s.w.now, 503, "OOMKilled: "+s.killed.Error()))
		return
	}
	s.w.nextID++
	r.id = s.w.nextID
	s.requests[r.id] = r
	prompt := r.promptTokens()
	s.submitted(r.id, prompt)
	m := &engine.Submit{ID: r.id, PromptTokens: max(1, len(prompt)), MaxTokens: r.asked,
		StopAfter: s.w.draws.Tokens(r.ID, 0), HoldAfterFirst: r.session.Held()}
	if cfg := s.engine.Config(); cfg.Batching == engine.BatchingIndependent {
		m.PrefillTime, m.TokenTime = s.w.draws.PrefillTime(r.ID), s.w.draws.InterTokenTime(r.ID)
	} else if !cfg.DisablePrefixCaching {
		m.Hashes = engine.BlockHashes(nil, 0, prompt, cfg.BlockSize)
	}
	if r.leg != nil {
		if m.HoldKV = r.leg.hold; r.leg.remote != nil {
			m.Remote = *r.leg.remote
		}
	}
	s.input(m)
}

// promptTokens is what a model server makes of a chat request's body.
func promptTokens(body []byte) []uint32 {
	c, bad := openai.ParseChat(body)
	if bad != nil {
		return nil
	}
	turns := make([]tokens.Message, len(c.Messages))
	for i, m := range c.Messages {
		turns[i] = tokens.Message{Role: m.Role, Content: m.Content.Text}
	}
	return tokens.Packed{}.Encode(nil, tokens.TemplateFor(c.Model).Render(turns, "", true))
}

// input hands the engine a message and plays what comes of it.
func (s *server) input(m engine.Message) {
	s.engine.Input(s.w.now, m, &s.fx)
	s.drain()
}

func (s *server) wake(at machine.Time) {
	if at != s.wakeAt {
		return // an earlier or later wake-up took its place
	}
	s.wakeAt = 0
	s.engine.Advance(at, &s.fx)
	s.drain()
}

// drain plays effects in order. What they cause in the same engine joins the
// list, so the loop and not the stack grows.
func (s *server) drain() {
	if s.draining {
		return
	}
	s.draining = true
	for i := 0; i < len(s.fx.List); i++ {
		s.effect(s.fx.List[i])
	}
	s.fx.Reset()
	s.told()
	s.draining = false
	if at, ok := s.engine.Next(); ok && (s.wakeAt == 0 || at < s.wakeAt) {
		s.wakeAt = at
		s.w.queue.Push(at, machine.ClassStepEnd, event{kind: wakeServer, server: s})
	}
}

func (s *server) effect(e engine.Effect) {
	switch e.Kind {
	case engine.Stepped:
		s.steps.Record(&s.fx, &e)
		return
	case engine.BlockStored, engine.BlockRemoved, engine.AllBlocksCleared:
		s.announce(&e)
		return
	case engine.KVHeld, engine.KVPull, engine.KVRelease:
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
		if r.leg != nil {
			r.leg.cached = int(e.Count)
		}
		r.session.PrefillStarted(e.At, flow.D("cached_tokens", int(e.Count)))
	case engine.FirstToken:
		r.tokens = 1
		r.do(r.session.FirstToken(e.At, r.firstToken()))
	case engine.Finished:
		delete(s.requests, e.Request)
		r.tokens = int(e.Count)
		r.do(r.session.Generated(e.At, r.tokens, e.Reason.String()))
	case engine.Rejected:
		delete(s.requests, e.Request)
		r.do(r.session.Rejected(e.At, statusOf(e.Code), e.Code.String()))
	case engine.Aborted:
		delete(s.requests, e.Request)
	}
}
