package inputlog

import (
	"errors"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/objects"
	"github.com/windtunnel/windtunnel/core/picker/parse"
)

type answer struct {
	Plugin string `json:"plugin,omitempty"`
	Key    string `json:"key,omitempty"`
	// Endpoints are those of which Latencies, in milliseconds, were predicted.
	Endpoints []string     `json:"endpoints,omitzero"`
	Error     *string      `json:"error,omitempty"`
	Prompts   []prompt     `json:"prompts,omitzero"`
	Latencies [][2]float64 `json:"latencies,omitzero"`
	Value     []byte       `json:"value,omitzero"`
}

// answersOf returns answers as the log has them. What a renderer said is in its prompts.
func (o *Options) answersOf(list []picker.Answer) []answer {
	out := make([]answer, len(list))
	for i := range list {
		a, x := &list[i], &out[i]
		*x = answer{Plugin: a.Plugin, Key: a.Key, Endpoints: a.Endpoints}
		switch {
		case a.Err != nil:
			text := a.Err.Error()
			x.Error = &text
		case a.Prompts != nil:
			x.Prompts = o.promptsOf(a.Prompts, true)
		case a.Latencies != nil:
			x.Latencies = make([][2]float64, len(a.Latencies))
			for j, l := range a.Latencies {
				x.Latencies[j] = [2]float64{l.TTFTMs, l.TPOTMs}
			}
		default:
			x.Value = append([]byte{}, a.Value...)
		}
	}
	return out
}

func (x *answer) answer() picker.Answer {
	a := picker.Answer{Plugin: x.Plugin, Key: x.Key, Value: x.Value, Prompts: prompts(x.Prompts),
		Endpoints: x.Endpoints}
	for _, l := range x.Latencies {
		a.Latencies = append(a.Latencies, picker.Latency{TTFTMs: l[0], TPOTMs: l[1]})
	}
	if x.Error != nil {
		a.Err = errors.New(*x.Error)
	}
	return a
}

// response is what the headers of a response say.
type response struct {
	headers
	Started machine.Time `json:"started,omitempty"`
	Served  *served      `json:"served,omitempty"`
}

type served struct {
	Known    bool   `json:"known,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
}

func responseOf(r *picker.Response) *response {
	x := &response{headers: headersOf(r.Headers, nil), Started: r.StartedAt}
	if s := r.Served; s.Told {
		x.Served = &served{s.Known, s.Endpoint}
	}
	return x
}

func (x *response) response(p *picker.Picker, d *picker.Decision) *picker.Response {
	r := p.NewResponse(x.Started, d, x.list())
	if x.Served != nil {
		r.Served = picker.Served{Told: true, Known: x.Served.Known, Endpoint: x.Served.Endpoint}
	}
	return r
}

// progress is what was read of a response's body.
type progress struct {
	Response   *response    `json:"response,omitempty"` // where its headers did not enter by themselves
	First      bool         `json:"first,omitempty"`
	End        bool         `json:"end,omitempty"`
	Bytes      int64        `json:"bytes,omitempty"`
	Chunks     int          `json:"chunks,omitempty"`
	FirstAt    machine.Time `json:"firstAt,omitempty"`
	LastAt     machine.Time `json:"lastAt,omitempty"`
	Events     int          `json:"events,omitempty"`
	Usage      bool         `json:"usage,omitempty"`
	Prompt     int          `json:"prompt,omitempty"`
	Completion int          `json:"completion,omitempty"`
	Total      int          `json:"total,omitempty"`
	Cached     *int         `json:"cached,omitempty"`
}

// progressOf returns what was read of a response: of its headers, unless they
// entered before, and of its body.
func progressOf(r *epp.Request) *progress {
	p := &r.Response.Progress
	x := &progress{First: p.First, End: p.End, Bytes: p.Bytes, Chunks: p.Chunks, FirstAt: p.FirstAt, LastAt: p.LastAt,
		Events: p.Events, Usage: p.HasUsage, Prompt: p.Usage.PromptTokens, Completion: p.Usage.CompletionTokens,
		Total: p.Usage.TotalTokens}
	if !r.Seen() {
		x.Response = responseOf(r.Response)
	}
	if p.Usage.HasCached || p.Usage.CachedTokens != 0 {
		x.Cached = &p.Usage.CachedTokens
	}
	return x
}

func (x *progress) progress() picker.Progress {
	p := picker.Progress{First: x.First, End: x.End, Bytes: x.Bytes, Chunks: x.Chunks, FirstAt: x.FirstAt,
		LastAt: x.LastAt, HasUsage: x.Usage, Events: x.Events,
		Usage: parse.Usage{PromptTokens: x.Prompt, CompletionTokens: x.Completion, TotalTokens: x.Total}}
	if x.Cached != nil {
		p.Usage.CachedTokens, p.Usage.HasCached = *x.Cached, true
	}
	return p
}

// done is the end of a request's stream.
type done struct {
	Read *progress `json:"read,omitempty"` // nil where there was no response
	Told bool      `json:"told,omitempty"` // its client was told of an error
}

type endpoint struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Address   string            `json:"address"`
	Port      string            `json:"port"`
	Labels    map[string]string `json:"labels,omitempty"`
	Rank      int               `json:"rank,omitempty"`
}

func endpointsOf(list []*picker.Endpoint) []endpoint {
	out := make([]endpoint, len(list))
	for i, e := range list {
		out[i] = endpoint{e.Namespace, e.Name, e.Address, e.Port, e.Labels, e.Rank}
	}
	return out
}

func endpoints(list []endpoint) (out []*picker.Endpoint) {
	for _, x := range list {
		e := picker.NewEndpoint(x.Namespace, x.Name, x.Address, x.Port, x.Labels)
		e.Rank = x.Rank
		out = append(out, e)
	}
	return out
}

// selection is Kubernetes objects.
type selection struct {
	Objects       picker.Objects               `json:"objects"`
	Priorities    []int                        `json:"priorities"`
	KeepEndpoints bool                         `json:"keepEndpoints"`
	Endpoints     []endpoint                   `json:"endpoints"`
	Announced     map[string]*picker.Announced `json:"serving"`
}

func (x *selection) objects() epp.Objects {
	return epp.Objects{KeepEndpoints: x.KeepEndpoints, Selection: objects.Selection{Objects: x.Objects,
		Priorities: x.Priorities, Announced: x.Announced, Endpoints: endpoints(x.Endpoints)}}
}

type kvEvents struct {
	Index  int       `json:"index,omitempty"`
	Pod    string    `json:"pod,omitempty"`
	Model  string    `json:"model,omitempty"`
	Events []kvEvent `json:"events"`
}

type kvEvent struct {
	Kind   kv.Kind       `json:"kind,omitempty"`
	Hashes machine.Words `json:"hashes,omitempty"`
	Medium string        `json:"medium,omitempty"`
	Group  *int          `json:"group,omitempty"`
	Parent machine.Words `json:"parent,omitempty"`
	Count  int           `json:"tokens,omitempty"`
	Block  int           `json:"block,omitempty"`
	Keys   machine.Words `json:"keys,omitempty"`
	LoRA   string        `json:"lora,omitempty"`
	Spec   string        `json:"spec,omitempty"`
	Window int           `json:"window,omitempty"`
	Pod    string        `json:"pod,omitempty"`
	Name   string        `json:"name,omitempty"`
	Model  string        `json:"model,omitempty"`
	ByName bool          `json:"byName,omitempty"`
	Bytes  int64         `json:"blockBytes,omitempty"`
	Blocks int           `json:"capacity,omitempty"`
	IDs    []byte        `json:"ids,omitempty"` // with Options.Bodies: the tokens
	Extra  [][]string    `json:"extra,omitzero"`
}

func (o *Options) kvEventsOf(m *epp.KVEvents) *kvEvents {
	out := &kvEvents{m.Index, m.From.Pod, m.From.Model, make([]kvEvent, len(m.Events))}
	for i := range m.Events {
		e, x := &m.Events[i], &out.Events[i]
		*x = kvEvent{Kind: e.Kind, Hashes: machine.WordsOf(e.Hashes), Medium: e.Medium, Count: e.NumTokens(),
			Block: e.BlockTokens, LoRA: e.LoRAName, Spec: e.SpecKind, Window: e.SlidingWindow, Pod: e.Pod, Name: e.Name,
			Model: e.Model, ByName: e.ByName, Bytes: e.BlockBytes, Blocks: e.Capacity}
		if e.Group != kv.NoGroup {
			x.Group = &e.Group
		}
		if e.Parent != 0 {
			x.Parent = machine.Words{uint64(e.Parent)}
		}
		if i < len(m.Keys) {
			x.Keys = machine.WordsOf(m.Keys[i])
		}
		if o.Bodies && len(e.Tokens) > 0 {
			p := parse.TokenPrompt(e.Tokens)
			x.IDs, x.Extra = p.Bytes(), e.ExtraKeys
		}
	}
	return out
}

// events makes the events again. With its tokens an index may make its own keys.
func (x *kvEvents) events() epp.KVEvents {
	out := epp.KVEvents{Index: x.Index, From: kv.Topic{Pod: x.Pod, Model: x.Model}}
	for i := range x.Events {
		e := &x.Events[i]
		y := kv.Event{Kind: e.Kind, Medium: e.Medium, Group: kv.NoGroup, BlockTokens: e.Block, LoRAName: e.LoRA,
			SpecKind: e.Spec, SlidingWindow: e.Window, Pod: e.Pod, Name: e.Name, Model: e.Model, ByName: e.ByName,
			BlockBytes: e.Bytes, Capacity: e.Blocks, TokenCount: e.Count, Hashes: wordsAs[kv.EngineHash](e.Hashes),
			Keys: wordsAs[kv.Key](e.Keys)}
		if e.Group != nil {
			y.Group = *e.Group
		}
		if len(e.Parent) > 0 {
			y.Parent = kv.EngineHash(e.Parent[0])
		}
		if e.IDs != nil {
			y.Tokens, y.ExtraKeys = tokenIDs(e.IDs), e.Extra
		}
		out.Events = append(out.Events, y)
	}
	return out
}

type kvLost struct {
	Index int    `json:"index"`
	Pod   string `json:"pod"`
}
