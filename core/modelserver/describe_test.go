package modelserver

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/sse"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// A server treats a described request like its bytes: it submits the same to the engine, with the names of all blocks,
// and makes the same refusals, the same content and, at the end, an answer with the same usage.
func TestDescribed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(1, 3000)
		c := workload.Config{Seed: rapid.Uint64().Draw(t, "seed"),
			Model:  rapid.SampledFrom([]string{"m", "adapter", "other"}).Draw(t, "model"),
			Stream: rapid.Bool().Draw(t, "stream"), MaxTokens: rapid.SampledFrom([]int{0, 1, 40, 5000}).Draw(t, "max"),
			API: rapid.SampledFrom([]workload.API{workload.Chat, workload.Completions, workload.Generate}).Draw(t,
				"api"),
			Fields: []byte(rapid.SampledFrom(
				[]string{"", `"cache_salt":"x"`, `"n":2`, `"temperature":-1`, `"temperature":0`, `"seed":7`, `"ignore_eos":true`,
					`"cache_hit_threshold":0.5`}).Draw(t, "fields")),
			Prompts: workload.Prompts{Length: func(*machine.Draw) int { return length.Draw(t, "length") }},
			Turns:   func(*machine.Draw) int64 { return 4 }}
		if c.Stream && rapid.Bool().Draw(t, "usage") {
			c.Fields = []byte(`"stream_options":{"include_usage":true}`)
		}
		if rapid.Bool().Draw(t, "prefixes") {
			c.Prefixes = workload.Prefixes(1, 2, workload.ASCII, func(*machine.Draw) int64 { return 600 })
		}
		c.Describe()
		reader := describedReader(t)
		v := c.Conversation(0, 0)
		for {
			r := v.Request()
			api := APIOf(r.Path)
			head := Head{RequestID: r.ID, Attempt: 1}
			q, bad := reader.ReadDescribed(api, &head, &r.Described)
			want, wantBad := api.Read(reader, &head, r.Described.Bytes())
			if d := cmp.Diff(wantBad, bad); d != "" {
				t.Fatal(d)
			}
			if bad != nil {
				return
			}
			if d := cmp.Diff(want, q, cmpopts.IgnoreUnexported(Request{}),
				cmpopts.IgnoreFields(Request{}, "Encoder", "Prompts"), cmpopts.EquateEmpty()); d != "" ||
				q.PromptTokens() != want.PromptTokens() {
				t.Fatal(d, want.PromptTokens(), q.PromptTokens())
			}
			got, written := begin(reader, api, &head, q), begin(reader, api, &head, want)
			if !got.resp.Over() {
				for i := range written.resp.Sequences() {
					g, w := &got.resp.Sequences()[i], &written.resp.Sequences()[i]
					if d := cmp.Diff(w.Submit, g.Submit, cmpopts.EquateEmpty()); d != "" || w.said.base != g.said.base {
						t.Fatal(d, w.said.base, g.said.base)
					}
					n := g.Submit.PromptTokens + 3
					if d := cmp.Diff(w.Tokens(0, n), g.Tokens(0, n)); d != "" {
						t.Fatal(d)
					}
				}
				tokens := rapid.IntRange(1, 30).Draw(t, "tokens")
				fails := rapid.Bool().Draw(t, "fails")
				got.end(tokens, fails)
				written.end(tokens, fails)
				if d := cmp.Diff(written.says(), got.says()); d != "" || !fails &&
					got.described == (api == GRPCGenerate || api == GRPCEmbed) {
					t.Fatal(d, got.described)
				}
			}
			if !v.More() {
				return
			}
			words, text := described.Text{}, ""
			if got.resp.Request() != nil && len(got.p.Choices) > 0 {
				words, text = got.resp.Said()
			}
			if text != "" {
				t.Fatalf("said %q and no words", text)
			}
			v.NextDescribed(words, record.Completed)
		}
	})
}

func describedReader(t *rapid.T) *Reader {
	eng, err := engine.New(engine.Config{Batching: engine.BatchingContinuous,
		Timer: latency.Constant{TimeToFirstToken: 1, InterTokenLatency: 1}, NumGPUBlocks: 1000, MaxModelLen: 4096,
		BlockSize: 16, KVEvents: true})
	if err != nil {
		t.Fatal(err)
	}
	model := rapid.SampledFrom([]string{"m", "llama-3", "gpt-oss"}).Draw(t, "template")
	return &Reader{Config: &Config{Seed: 3, Engine: eng.Config(), Models: []string{"m"}, Tokenizer: tokens.Packed{},
		Template:   tokens.TemplateFor(model),
		Vocabulary: tokens.NewVocabulary(tokens.Packed{}), PromptTokensDetails: rapid.Bool().Draw(t, "details")},
		State: &nowhere{}}
}

// telling is a Response that a test describes, as virtual time does, or writes.
type telling struct {
	resp      Response
	fx        Effects
	p         Progress
	described bool
	usage     usage
	sent      []byte
}

// usage holds the token counts of an answer; the zero value means that the answer has none.
type usage struct {
	Prompt  int `json:"prompt_tokens"`
	Total   int `json:"total_tokens"`
	Details *struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func begin(reader *Reader, api *API, head *Head, q *Request) *telling {
	x := &telling{described: q.Prompts[0].of != nil}
	x.resp.Init(reader, &ResponseOptions{Head: head, API: api, Brief: true, Silent: true})
	x.resp.Open(0, "", &x.fx)
	x.resp.Body(0, 10, &x.fx)
	x.fx.Reset()
	x.p.Choices = make([]Choice, q.Choices())
	x.resp.Take(0, q, nil, &x.fx)
	return x
}

// end reports the first token and then the end.
func (x *telling) end(n int, fails bool) {
	x.fx.Reset()
	for i := range x.p.Choices {
		x.p.Choices[i].Tokens = 1
	}
	x.p.Started, x.p.Cached = true, 16
	x.tell()
	for i := range x.p.Choices {
		x.p.Choices[i] = Choice{Tokens: n, Finished: true, Reason: engine.ReasonLength}
	}
	if fails {
		x.p.Choices[0].Reason = engine.ReasonCrash
	}
	x.tell()
}

func (x *telling) tell() {
	x.resp.Input(1, &x.p, &x.fx)
	for i := range x.fx.List {
		e := &x.fx.List[i]
		if e.Kind != BeginAnswer && e.Kind != Tokens && e.Kind != End && e.Kind != Fail {
			continue
		}
		var p described.Piece
		if x.described {
			p, x.described = x.resp.Describe(e)
		}
		switch {
		case !x.described:
			x.sent = x.resp.Append(x.sent, e)
		case p.Has:
			x.usage = usage{Prompt: p.Usage.PromptTokens, Total: p.Usage.PromptTokens + p.Usage.CompletionTokens}
			if p.Usage.Details {
				x.usage.Details = &struct {
					Cached int `json:"cached_tokens"`
				}{p.Usage.CachedTokens}
			}
		}
	}
	x.fx.Reset()
}

// says returns the token counts of the answer.
func (x *telling) says() usage {
	if x.described {
		return x.usage
	}
	last := x.usage
	var events sse.Scanner
	if events.Write(x.sent); !bytes.HasPrefix(x.sent, []byte("data:")) {
		events = sse.Scanner{}
		events.Write(sse.Append(nil, x.sent))
	}
	for e, ok := events.Next(); ok; e, ok = events.Next() {
		var o struct{ Usage *usage }
		if json.Unmarshal(e.Data, &o) == nil && o.Usage != nil {
			last = *o.Usage
		}
	}
	return last
}
