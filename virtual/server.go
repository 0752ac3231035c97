package virtual

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/metrics"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/serving"
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
	reader   modelserver.Reader
	requests map[engine.RequestID]*sequence
	news     []*answering                     // of which the engine has said something
	blocks   map[int]uint64                   // handles by the first block's number
	block    int                              // the last number that was given
	kept     map[uint64]int                   // the first block's number by handle
	holds    map[uint64]bool                  // handles of blocks that others may fetch
	named    map[string]uint64                // handles by the key that others ask by
	keys     map[uint64]string                // and those keys
	waiting  map[string][]*pull               // who asks for what is not computed yet
	fetched  *simplelru.LRU[string, struct{}] // document 002's handles that were
	kv       kvOutbox
	steps    serving.EngineSteps
	killed   error // why it does not fit into its memory, if so
	dead     bool  // it crashed, or lost a rank
}

func statusText(status int) string { return strconv.Itoa(status) }

// submit gives a request's completions to the engine.
func (s *server) submit(a *answering) {
	all := a.resp.Sequences()
	for i := range all {
		x := &sequence{Sequence: &all[i], a: a, live: true, writer: -1}
		a.seqs = append(a.seqs, x)
		x.Rename(func(id engine.RequestID) bool { return s.requests[id] != nil || s.holds[uint64(id)] })
		s.requests[x.Submit.ID] = x
		s.submitted(x)
		s.fetches(x)
		s.stockpiled(x)
		s.input(&x.Submit)
	}
}

// fetches has a completion's prompt come from another server, where the request
// names one.
func (s *server) fetches(x *sequence) {
	kv := x.a.resp.Request().KV.Remote
	if kv == nil {
		return
	}
	from := s.w.byHost(kv.Host)
	if kv.Key == "" {
		from = s.w.byEngine[kv.EngineID]
	}
	if from == nil {
		return
	}
	x.Submit.Remote = engine.RemoteKV{From: engine.EngineID(from.index), Tokens: len(x.Prompt.Tokens)}
	if kv.Tokens > 0 {
		x.Submit.Remote.Tokens = min(kv.Tokens, len(x.Prompt.Tokens))
	}
	if len(kv.Blocks) > 0 {
		x.Submit.Remote.Handle = from.blocks[kv.Blocks[0]]
	}
}

// stockpiled lets a completion begin with blocks that the external cache has.
func (s *server) stockpiled(x *sequence) {
	wires := s.w.wires
	if wires == nil || !wires.profile.ViaStore || x.Submit.Remote.Tokens > 0 || s.engine.Config().DisablePrefixCaching {
		return
	}
	x.stores = s.reader.PromptHashes(x.a.resp.Request(), x.Sequence)
	n, writer := wires.store.Find(x.stores, s.index)
	if n > 0 {
		x.stored, x.writer = true, writer
		x.Submit.Remote = engine.RemoteKV{From: engine.EngineID(s.index), Tokens: min(n*s.engine.Config().BlockSize, x.Submit.PromptTokens)}
	}
}

// prefilled puts a prompt's blocks into the external cache.
func (x *sequence) prefilled() {
	if x.stores != nil {
		x.a.s.w.wires.store.Put(x.stores, x.a.s.index)
		x.stores = nil
	}
}

// page is what the server's metrics say, of the families that somebody wants.
func (s *server) page(wants func(family string) bool) metrics.Page {
	stats, cfg := s.engine.Stats(), s.engine.Config()
	p := metrics.Page{}
	add := func(family string, v float64, labels ...metrics.Label) {
		if wants(family) {
			p[family] = &metrics.Family{Typed: true, Samples: []metrics.Sample{{Labels: labels, Value: v}}}
		}
	}
	add("vllm:num_requests_waiting", float64(stats.Waiting))
	add("vllm:num_requests_running", float64(stats.Running))
	if cfg.NumGPUBlocks > 0 {
		add("vllm:kv_cache_usage_perc", float64(s.engine.KVBlocksUsed())/float64(cfg.NumGPUBlocks))
	}
	add("vllm:cache_config_info", 1, metrics.Label{Name: "block_size", Value: strconv.Itoa(cfg.BlockSize)},
		metrics.Label{Name: "num_gpu_blocks", Value: strconv.Itoa(cfg.NumGPUBlocks)})
	if len(s.w.adapters) > 0 {
		running, waiting := s.loras()
		add("vllm:lora_requests_info", 1, metrics.Label{Name: "max_lora", Value: strconv.Itoa(cfg.MaxLoRAs)},
			metrics.Label{Name: "running_lora_adapters", Value: strings.Join(running, ",")}, metrics.Label{Name: "waiting_lora_adapters", Value: strings.Join(waiting, ",")})
	}
	return p
}

// loras are the adapters of running and of waiting requests.
func (s *server) loras() (running, waiting []string) {
	for _, x := range s.requests {
		switch name := x.a.resp.Request().LoRA; {
		case name == "":
		case x.begun:
			running = append(running, name)
		default:
			waiting = append(waiting, name)
		}
	}
	slices.Sort(running)
	slices.Sort(waiting)
	return slices.Compact(running), slices.Compact(waiting)
}

func (s *server) effect(e engine.Effect) {
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
	x := s.requests[e.Request]
	if x == nil {
		return
	}
	p := &x.a.p
	c := &p.Choices[x.Choice]
	switch e.Kind {
	case engine.PrefillStarted:
		x.begun = true
		if !p.Started { // it comes again after a preemption
			p.Started, p.StartedAt, p.Cached = true, e.At, int(e.Count)
		}
	case engine.FirstToken:
		x.prefilled()
		c.Tokens = 1
	case engine.Tokens:
		c.Tokens = int(e.First) + int(e.Count)
	case engine.Finished:
		x.prefilled()
		c.Tokens, c.Finished, c.Reason = int(e.Count), true, e.Reason
		s.over(x)
	case engine.Rejected:
		p.Rejected, p.Code = true, e.Code
		s.over(x)
	case engine.Aborted:
		c.Finished, c.Aborted = true, true
		s.over(x)
	default:
		return
	}
	x.a.touch()
}

// over is told that the engine has no more of a completion.
func (s *server) over(x *sequence) {
	x.live = false
	delete(s.requests, x.Submit.ID)
}

// tellAll tells the Responses what the engine has said.
func (s *server) tellAll() {
	s.told()
	news := s.news
	s.news = nil
	for _, a := range news {
		a.news = false
		a.input(&a.p)
	}
}
