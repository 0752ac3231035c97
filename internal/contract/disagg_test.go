package contract

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
)

// answers are bodies of servers' answers, some of them invalid.
var answers = []string{`{}`, `null`, `no JSON`, `{"0":{"engine_id":"e"}}`,
	`{"choices":[{"finish_reason":"cache_threshold"}]}`,
	`{"choices":[{"message":{"content":"a"},"kv_metadata":{"kv_handle":"h","tokens_processed":3}}],` +
		`"kv_transfer_params":{"remote_block_ids":[1,2]},"usage":{"completion_tokens":2}}`}

func sidecars(t *rapid.T) Kind[disagg.Message, *disagg.Effects] {
	c := disagg.Config{Connector: rapid.SampledFrom(connector.All).Draw(t, "connector"),
		Retries:  rapid.IntRange(0, 2).Draw(t, "retries"),
		FallBack: rapid.Bool().Draw(t, "fall back"), ChunkTokens: rapid.SampledFrom([]int{0, 2}).Draw(t, "chunk"),
		Seed: 1,
		MoRIIO: connector.MoRIIO{Write: rapid.Bool().Draw(t, "MoRI-IO"), Parallel: rapid.Bool().Draw(t, "parallel"),
			Wait: 300 * machine.Millisecond}}
	if rapid.IntRange(0, 3).Draw(t, "encodes") == 0 {
		c.Encoder = disagg.ECNIXL
	}
	sessions := rapid.IntRange(0, 3).Draw(t, "sessions") == 0
	r := disagg.Request{Number: 1, Method: "POST", Path: "/v1/chat/completions",
		Prefillers: disagg.ParseTargets(rapid.SampledFrom([]string{"", "a:1", "a:1,b:2", "?:x"}).Draw(t, "prefillers")),
		Encoders:   disagg.ParseTargets("c:3"),
		Body: []byte(rapid.SampledFrom([]string{`{}`, `{"cache_hit_threshold":0.5,"messages":[]}`, `[`,
			`{"stream":true,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]}`}).
			Draw(t, "body"))}
	return Kind[disagg.Message, *disagg.Effects]{
		Make: func() Instance[disagg.Message, *disagg.Effects] {
			c := c
			if sessions {
				c.Sessions, _ = disagg.NewSessions(1, nil) // the size is valid
			}
			x := disagg.New(&c, r)
			return Instance[disagg.Message, *disagg.Effects]{Machine: x, Effects: new(disagg.Effects), Say: saySidecar,
				State: func() string { return fmt.Sprint(x.Over(), x.Served(), x.Prefiller(), x.Blocks()) }}
		},
		Message: func(t *rapid.T, _ machine.Time) disagg.Message {
			leg := rapid.IntRange(0, 4).Draw(t, "leg")
			text := []byte(rapid.SampledFrom(answers).Draw(t, "text"))
			switch rapid.IntRange(0, 12).Draw(t, "message") {
			case 0, 1:
				return disagg.Start{}
			case 2, 3, 4:
				return disagg.Head{Leg: leg,
					Status:      rapid.SampledFrom([]int{200, 200, 200, 400, 503}).Draw(t, "status"),
					ContentType: rapid.SampledFrom([]string{"application/json", "text/event-stream"}).Draw(t, "type")}
			case 5, 6, 7:
				return disagg.Whole{Leg: leg, Body: text}
			case 8:
				return disagg.Part{Leg: leg, Data: append([]byte("data: "), text...), End: rapid.Bool().Draw(t, "end")}
			case 9, 10:
				return disagg.Failed{Leg: leg, Reason: "broken", Refused: rapid.Bool().Draw(t, "refused")}
			case 11:
				return disagg.Delivered{Bytes: 3}
			}
			if rapid.IntRange(0, 4).Draw(t, "gone") == 0 {
				return disagg.Gone{Reason: "the client left"}
			}
			return disagg.FirstByte{Bytes: 1}
		},
		Spans: []machine.Time{machine.Millisecond, 100 * machine.Millisecond, 200 * machine.Millisecond},
		Rest:  60 * machine.Second,
	}
}

func saySidecar(fx *disagg.Effects) []Said {
	var out []Said
	for _, e := range fx.List {
		text := fmt.Sprintf("%T %+v", e.Do, e.Do)
		if d, ok := e.Do.(disagg.Deliver); ok {
			text = fmt.Sprintf("deliver leg %d after %q, changed %v", d.Leg, d.Before, d.Change != nil)
		}
		out = append(out, Said{e.At, text})
	}
	return out
}
