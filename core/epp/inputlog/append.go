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
	picker.Answer
	Error   *string  `json:"error"`
	Prompts []prompt `json:"prompts"`
	// Latencies, in milliseconds, are the predictions for Endpoints.
	Latencies [][2]float64 `json:"latencies"`
}

// appendAnswers writes answers. A renderer's answer is in its prompts.
func (o *Options) appendAnswers(b []byte, list []picker.Answer) []byte {
	b = append(field(b, "answered"), '[')
	for i := range list {
		a := &list[i]
		b = append(comma(b), '{')
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
	a := x.Answer
	a.Prompts = prompts(x.Prompts)
	for _, l := range x.Latencies {
		a.Latencies = append(a.Latencies, picker.Latency{TTFTMs: l[0], TPOTMs: l[1]})
	}
	if x.Error != nil {
		a.Err = errors.New(*x.Error)
	}
	return a
}

// response holds the headers of a response.
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
	if s := r.Served; s.Given {
		b = object(b, "served")
		b = appendTrue(b, "known", s.Known)
		b = appendText(b, "endpoint", s.Endpoint)
		b = append(b, '}')
	}
	return append(b, '}')
}

func (x *response) response(p *picker.Picker, d *picker.Decision) *picker.Response {
	r := p.NewResponse(x.Started, d, x.Headers.list(x.Hidden))
	if x.Served != nil {
		r.Served = picker.Served{Given: true, Known: x.Served.Known, Endpoint: x.Served.Endpoint}
	}
	return r
}

// progress is the part of a response's body that was read.
type progress struct {
	picker.Progress
	Response *response `json:"response"` // if its headers did not enter by themselves
	Cached   *int      `json:"cached"`
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
	p := x.Progress
	if x.Cached != nil {
		p.Usage.CachedTokens, p.Usage.HasCached = *x.Cached, true
	}
	return p
}

// done is the end of a request's stream.
type done struct {
	Response *response `json:"response"` // if its headers did not enter by themselves
	Read     *progress `json:"read"`     // nil if there was no response
	ErrSent  bool      `json:"told"`     // its client got an error
}

// selection holds the Kubernetes objects of a pool.
type selection struct {
	Objects       picker.Objects               `json:"objects"`
	Priorities    []int                        `json:"priorities"`
	KeepEndpoints bool                         `json:"keepEndpoints"`
	Endpoints     []*picker.Endpoint           `json:"endpoints"`
	Announced     map[string]*picker.Announced `json:"serving"`
}

func (x *selection) objects() epp.Objects {
	return epp.Objects{Selection: objects.Selection{Objects: x.Objects, Priorities: x.Priorities,
		Announced: x.Announced, Endpoints: x.Endpoints}, KeepEndpoints: x.KeepEndpoints}
}

// appendJSON writes rare values.
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
	kv.Event
	Hashes machine.Words `json:"hashes"`
	Group  *int          `json:"group"`
	Parent machine.Words `json:"parent"`
	Keys   machine.Words `json:"keys"`
	IDs    []byte        `json:"ids"` // with Options.Bodies: the tokens
	Extra  [][]string    `json:"extra"`
}

func (o *Options) appendKVEvents(b []byte, x *epp.KVEvents) []byte {
	b = object(b, "kvEvents")
	b = appendInt(b, "index", x.Index)
	b = appendText(b, "pod", x.From.Pod)
	b = appendText(b, "model", x.From.Model)
	b = append(field(b, "events"), '[')
	for i := range x.Events {
		e := &x.Events[i]
		b = append(comma(b), '{')
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

// events returns the events. With its tokens an index may make its own keys.
func (x *kvEvents) events() epp.KVEvents {
	out := epp.KVEvents{Index: x.Index, From: kv.Topic{Pod: x.Pod, Model: x.Model}}
	for i := range x.Events {
		e := &x.Events[i]
		y := e.Event
		y.Group = kv.NoGroup
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

// appendFloat writes a number with all its digits. NaN and infinities, which JSON lacks, are texts.
func appendFloat(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		b = strconv.AppendFloat(append(b, '"'), v, 'g', -1, 64)
		return append(b, '"')
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

func appendError(b []byte, name string, e *apierror.Error) []byte {
	b = object(b, name)
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
	b = openai.AppendString(append(comma(b), '['), h.Name)
	b = openai.AppendString(append(b, ','), h.Value)
	return append(b, ']')
}
