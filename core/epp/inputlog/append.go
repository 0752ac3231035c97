package inputlog

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

type answer struct {
	Plugin  string   `json:"plugin"`
	Key     string   `json:"key"`
	Value   []byte   `json:"value"`
	Error   *string  `json:"error"`
	Prompts []prompt `json:"prompts"`
	// Endpoints are those of which Latencies, in milliseconds, were predicted.
	Endpoints []string     `json:"endpoints"`
	Latencies [][2]float64 `json:"latencies"`
}

// appendAnswers writes answers. What a renderer said is in its prompts.
func (o *Options) appendAnswers(b []byte, list []picker.Answer) []byte {
	b = append(field(b, "answered"), '[')
	for i := range list {
		a := &list[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		b = appendText(b, "plugin", a.Plugin)
		b = appendText(b, "key", a.Key)
		if a.Endpoints != nil {
			b = appendJSON(b, "endpoints", a.Endpoints)
		}
		switch {
		case a.Err != nil:
			b = openai.AppendString(field(b, "error"), a.Err.Error())
		case a.Prompts != nil:
			b = o.appendPrompts(b, a.Prompts, true)
		case a.Latencies != nil:
			list := make([][2]float64, len(a.Latencies))
			for j, l := range a.Latencies {
				list[j] = [2]float64{l.TTFTMs, l.TPOTMs}
			}
			b = appendJSON(b, "latencies", list)
		default:
			b = appendBytes(b, "value", a.Value)
		}
		b = append(b, '}')
	}
	return append(b, ']')
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
	Headers headers      `json:"headers"`
	Hidden  headers      `json:"hidden"`
	Started machine.Time `json:"started"`
	Served  *struct {
		Known    bool   `json:"known"`
		Endpoint string `json:"endpoint"`
	} `json:"served"`
}

func appendResponse(b []byte, r *picker.Response) []byte {
	b = appendHeaders(append(b, '{'), r.Headers, nil)
	b = appendInt(b, "started", r.StartedAt)
	if s := r.Served; s.Told {
		b = append(field(b, "served"), '{')
		b = appendTrue(b, "known", s.Known)
		b = appendText(b, "endpoint", s.Endpoint)
		b = append(b, '}')
	}
	return append(b, '}')
}

func (x *response) response(p *picker.Picker, d *picker.Decision) *picker.Response {
	r := p.NewResponse(x.Started, d, x.Headers.list(x.Hidden))
	if x.Served != nil {
		r.Served = picker.Served{Told: true, Known: x.Served.Known, Endpoint: x.Served.Endpoint}
	}
	return r
}

// progress is what was read of a response's body.
type progress struct {
	Response   *response    `json:"response"` // where its headers did not enter by themselves
	First      bool         `json:"first"`
	End        bool         `json:"end"`
	Bytes      int64        `json:"bytes"`
	Chunks     int          `json:"chunks"`
	FirstAt    machine.Time `json:"firstAt"`
	LastAt     machine.Time `json:"lastAt"`
	Events     int          `json:"events"`
	Usage      bool         `json:"usage"`
	Prompt     int          `json:"prompt"`
	Completion int          `json:"completion"`
	Total      int          `json:"total"`
	Cached     *int         `json:"cached"`
}

func appendProgress(b []byte, p *picker.Progress) []byte {
	b = appendTrue(b, "first", p.First)
	b = appendTrue(b, "end", p.End)
	b = appendInt(b, "bytes", p.Bytes)
	b = appendInt(b, "chunks", p.Chunks)
	b = appendInt(b, "firstAt", p.FirstAt)
	b = appendInt(b, "lastAt", p.LastAt)
	b = appendInt(b, "events", p.Events)
	b = appendTrue(b, "usage", p.HasUsage)
	b = appendInt(b, "prompt", p.Usage.PromptTokens)
	b = appendInt(b, "completion", p.Usage.CompletionTokens)
	b = appendInt(b, "total", p.Usage.TotalTokens)
	if p.Usage.HasCached || p.Usage.CachedTokens != 0 {
		b = strconv.AppendInt(field(b, "cached"), int64(p.Usage.CachedTokens), 10)
	}
	return b
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
	Response *response `json:"response"` // where its headers did not enter by themselves
	Read     *progress `json:"read"`     // nil where there was no response
	Told     bool      `json:"told"`     // its client was told of an error
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

func (x *endpoint) endpoint() *picker.Endpoint {
	e := picker.NewEndpoint(x.Namespace, x.Name, x.Address, x.Port, x.Labels)
	e.Rank = x.Rank
	return e
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
	o := epp.Objects{Selection: objects.Selection{Objects: x.Objects, Priorities: x.Priorities, Announced: x.Announced},
		KeepEndpoints: x.KeepEndpoints}
	for i := range x.Endpoints {
		o.Endpoints = append(o.Endpoints, x.Endpoints[i].endpoint())
	}
	return o
}

// appendJSON is for what comes rarely.
func appendJSON(b []byte, name string, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values always have a JSON form
	}
	return append(field(b, name), text...)
}

type kvEvents struct {
	Index  int       `json:"index"`
	Pod    string    `json:"pod"`
	Model  string    `json:"model"`
	Events []kvEvent `json:"events"`
}

type kvEvent struct {
	Kind   kv.Kind       `json:"kind"`
	Hashes machine.Words `json:"hashes"`
	Medium string        `json:"medium"`
	Group  *int          `json:"group"`
	Parent machine.Words `json:"parent"`
	Count  int           `json:"tokens"`
	Block  int           `json:"block"`
	Keys   machine.Words `json:"keys"`
	LoRA   string        `json:"lora"`
	Spec   string        `json:"spec"`
	Window int           `json:"window"`
	Pod    string        `json:"pod"`
	Name   string        `json:"name"`
	Model  string        `json:"model"`
	ByName bool          `json:"byName"`
	Bytes  int64         `json:"blockBytes"`
	Blocks int           `json:"capacity"`
	IDs    []byte        `json:"ids"` // with Options.Bodies: the tokens
	Extra  [][]string    `json:"extra"`
}

func (o *Options) appendKVEvents(b []byte, x *epp.KVEvents) []byte {
	b = append(field(b, "kvEvents"), '{')
	b = appendInt(b, "index", x.Index)
	b = appendText(b, "pod", x.From.Pod)
	b = appendText(b, "model", x.From.Model)
	b = append(field(b, "events"), '[')
	for i := range x.Events {
		e := &x.Events[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		b = appendInt(b, "kind", int(e.Kind))
		if len(e.Hashes) > 0 {
			b = appendList(b, "hashes", e.Hashes)
		}
		b = appendText(b, "medium", e.Medium)
		if e.Group != kv.NoGroup {
			b = strconv.AppendInt(field(b, "group"), int64(e.Group), 10)
		}
		if e.Parent != 0 {
			b = appendList(b, "parent", []kv.EngineHash{e.Parent})
		}
		b = appendInt(b, "tokens", max(len(e.Tokens), e.TokenCount))
		b = appendInt(b, "block", e.BlockTokens)
		if i < len(x.Keys) && len(x.Keys[i]) > 0 {
			b = appendList(b, "keys", x.Keys[i])
		}
		b = appendText(b, "lora", e.LoRAName)
		b = appendText(b, "spec", e.SpecKind)
		b = appendInt(b, "window", e.SlidingWindow)
		b = appendText(b, "pod", e.Pod)
		b = appendText(b, "name", e.Name)
		b = appendText(b, "model", e.Model)
		b = appendTrue(b, "byName", e.ByName)
		b = appendInt(b, "blockBytes", e.BlockBytes)
		b = appendInt(b, "capacity", e.Capacity)
		if o.Bodies && len(e.Tokens) > 0 {
			p := parse.TokenPrompt(e.Tokens)
			b = appendBytes(b, "ids", p.Bytes())
			if e.ExtraKeys != nil {
				b = appendJSON(b, "extra", e.ExtraKeys)
			}
		}
		b = append(b, '}')
	}
	return append(b, ']', '}')
}

// events makes the events again. With its tokens an index may make its own keys.
func (x *kvEvents) events() epp.KVEvents {
	out := epp.KVEvents{Index: x.Index, From: kv.Topic{Pod: x.Pod, Model: x.Model}}
	for i := range x.Events {
		e := &x.Events[i]
		y := kv.Event{Kind: e.Kind, Medium: e.Medium, Group: kv.NoGroup, BlockTokens: e.Block, LoRAName: e.LoRA,
			SpecKind: e.Spec, SlidingWindow: e.Window,
			Pod: e.Pod, Name: e.Name, Model: e.Model, ByName: e.ByName, BlockBytes: e.Bytes, Capacity: e.Blocks,
			TokenCount: e.Count}
		for _, w := range e.Hashes {
			y.Hashes = append(y.Hashes, kv.EngineHash(w))
		}
		for _, w := range e.Keys {
			y.Keys = append(y.Keys, kv.Key(w))
		}
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

// appendFloat writes a number with all its digits. What is no number in JSON is
// a text.
func appendFloat(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		b = strconv.AppendFloat(append(b, '"'), v, 'g', -1, 64)
		return append(b, '"')
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

func appendError(b []byte, name string, e *apierror.Error) []byte {
	b = append(field(b, name), '{')
	b = appendInt(b, "status", e.Status)
	b = appendText(b, "message", e.Message)
	b = appendText(b, "reason", e.Reason)
	return append(b, '}')
}

func appendPairs(b []byte, name string, list header.List) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(field(b, name), '[')
	for _, h := range list {
		b = appendPair(b, h)
	}
	return append(b, ']')
}

// appendPair writes the next pair of a list.
func appendPair(b []byte, h header.Header) []byte {
	if b[len(b)-1] != '[' {
		b = append(b, ',')
	}
	b = openai.AppendString(append(b, '['), h.Name)
	b = openai.AppendString(append(b, ','), h.Value)
	return append(b, ']')
}
