package disagg

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/described"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// A request that is described has the legs of one that is written, byte for byte,
// with every connector, whether or not prefilling works.
func TestDescribedLegs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		load := workload.Config{Seed: 3, Model: "m", Stream: rapid.Bool().Draw(t, "stream"),
			MaxTokens: rapid.IntRange(0, 2).Draw(t, "max"),
			API:       rapid.SampledFrom([]workload.API{workload.Chat, workload.Completions}).Draw(t, "api"),
			Fields: []byte(rapid.SampledFrom(
				[]string{"", `"cache_hit_threshold":0.5`, `"min_tokens":2`,
					`"stream_options":{"include_usage":true}`}).Draw(t, "fields"))}
		load.Describe()
		q := load.Conversation(0, 0).Request()
		c := Config{Seed: 1, Connector: rapid.SampledFrom(connector.All).Draw(t, "connector"),
			FallBack:    rapid.Bool().Draw(t, "fall back"),
			ChunkTokens: rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "chunk")}
		c.MoRIIO.Write = c.Connector == connector.NIXLv2 && rapid.Bool().Draw(t, "moriio")
		c.MoRIIO.Parallel = rapid.Bool().Draw(t, "parallel")
		status := rapid.SampledFrom([]int{200, 200, 400, 500}).Draw(t, "status")
		prefillers := rapid.SampledFrom([]string{"", "10.0.0.1:8000", "10.0.0.1:8000,10.0.0.2:8000"}).Draw(t,
			"prefillers")
		encoders := rapid.SampledFrom([]string{"", "", "10.0.0.3:8000"}).Draw(t, "encoders")
		play := func(body []byte, d *described.Body) (said []string) {
			c := c
			c.Recorder = record.Func(func(e record.Event) { said = append(said, fmt.Sprint(e.Step, e.Details)) })
			x := New(&c, Request{Number: 1, ID: "r", Method: "POST", Path: q.Path, Prefillers: ParseTargets(prefillers),
				Encoders: ParseTargets(encoders), Body: body, Described: d, Bytes: q.Len()})
			var fx Effects
			for messages := []Message{Start{}}; len(messages) > 0 && len(said) < 100; messages = messages[1:] {
				x.Input(0, messages[0], &fx)
				for _, e := range fx.List {
					call, ok := e.Do.(Call)
					if !ok {
						said = append(said, fmt.Sprintf("%T", e.Do))
						continue
					}
					l := call.Leg
					if l.Described != nil {
						l.Body, l.Described = l.Described.Bytes(), nil
					} else if l.Original && x.r.Described == nil {
						l.Body = x.r.Body
					}
					said = append(said, fmt.Sprintf("%s %s", l.Body, fmt.Sprint(l)))
					answer := `{"0":{"engine_id":"e"}}`
					if l.Kind != Bootstrap {
						answer = `{"choices":[{"message":{"content":"a"},"finish_reason":"length"}],` +
							`"usage":{"prompt_tokens":9,"completion_tokens":1},` +
							`"kv_transfer_params":{"remote_block_ids":[1,2]}}`
					}
					messages = append(messages, Head{Leg: l.ID, Status: status, ContentType: "application/json"},
						Whole{Leg: l.ID, Body: []byte(answer)})
				}
				fx.Reset()
			}
			return said
		}
		d := q.Described
		if diff := cmp.Diff(play(d.Bytes(), nil), play(nil, &d)); diff != "" {
			t.Fatal(diff)
		}
	})
}
