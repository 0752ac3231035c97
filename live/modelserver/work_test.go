package modelserver

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
)

// nested is a schema of arrays within arrays, each of 32.
func nested(depth int) string {
	s := `{"type":"string"}`
	for range depth {
		s = `{"type":"array","minItems":32,"items":` + s + `}`
	}
	return `{"type":"object","required":["a"],"properties":{"a":` + s + `}}`
}

// What a request has the server make before it answers is bounded by what the
// answer has room for, not by what a schema asks for.
func TestToolSchemasCostWhatTheyTell(t *testing.T) { // not in parallel: it looks at what is allocated
	b := start(t, fast())
	for name, schema := range map[string]string{
		"deep":       nested(14),
		"eight deep": nested(8),
		"wide": `{"type":"object","properties":{` +
			strings.TrimSuffix(strings.Repeat(`"a%":{"type":"object"},`, 400), ",") + `}}`,
		"of large constants": `{"type":"object","required":["a"],"properties":{"a":{"type":"array","minItems":32,` +
			`"items":{"type":"array","minItems":32,"items":{"const":"` + strings.Repeat("x", 10_000) + `"}}}}}`,
		"of nothing": `{"type":"object","required":["a"],"properties":{"a":{"type":"array","minItems":32,` +
			`"items":{"type":"array","minItems":32,"items":{"type":"array","minItems":32,"items":{"type":"array",` +
			`"minItems":32,"items":{"type":"array","minItems":32,"items":{"type":"object","properties":{"b":{},` +
			`"c":{},"d":{}}}}}}}}}}`,
	} {
		for i := 0; strings.Contains(schema, "%"); i++ {
			schema = strings.Replace(schema, "%", fmt.Sprint(i), 1)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		resp, body := b.post("/v1/chat/completions",
			`{"messages":[{"role":"user","content":"a"}],"max_tokens":50,"tool_choice":"required",`+
				`"tools":[{"type":"function","function":{"name":"f","parameters":`+schema+`}}]}`)
		runtime.ReadMemStats(&after)
		if resp.StatusCode != 200 {
			t.Fatalf("%s: %d %s", name, resp.StatusCode, body)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
			t.Errorf("%s: a schema of %d bytes takes %d MiB", name, len(schema), n>>20)
		}
		if strings.HasPrefix(name, "deep") || name == "eight deep" {
			var a struct {
				Choices []struct {
					Reason string `json:"finish_reason"`
				}
				Usage openaiUsage
			}
			if err := json.Unmarshal([]byte(body), &a); err != nil || a.Choices[0].Reason != "length" ||
				a.Usage.Completion != 50 {
				t.Errorf("%s: %s", name, body)
			}
		}
	}
}

type openaiUsage struct {
	Completion int `json:"completion_tokens"`
}

// One request cannot ask for any amount of work: beyond the limit, the server refuses it with a reason before it
// generates anything.
func TestWorkIsBounded(t *testing.T) {
	t.Parallel()
	b := start(t, batchedLong())
	for name, body := range map[string]string{
		"choices": `"n":16384,"max_tokens":7000`,
		"tool calls": `"n":1000,"tool_choice":"required","tools":[{"type":"function","function":{"name":"f",` +
			`"parameters":` + nested(14) + `}}]`,
		"log probabilities": `"n":100,"max_tokens":7000,"ignore_eos":true,"logprobs":true,"top_logprobs":20`,
		"stop strings": `"n":200,"max_tokens":7000,"ignore_eos":true,"stop":["` + strings.Repeat(`a","b`, 60) +
			`"]`,
		"a long stop": `"max_tokens":7000,"n":4,"ignore_eos":true,"stop":["` + strings.Repeat("z", 8000) + `"]`,
	} {
		resp, answer := b.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],`+body+`}`)
		if resp.StatusCode != 400 || !strings.Contains(answer, "64 MiB") {
			t.Errorf("%s: %d %.300s", name, resp.StatusCode, answer)
		}
	}
	b.until("nothing runs", b.idle)
	for name, body := range map[string]string{
		"a long answer":    `"max_tokens":7000,"ignore_eos":true`,
		"with likelihoods": `"max_tokens":100,"logprobs":true,"top_logprobs":20`,
		"several":          `"n":128,"max_tokens":16`,
		"a stop":           `"max_tokens":1000,"ignore_eos":true,"stop":["never to be met"]`,
	} {
		if resp, answer := b.post("/v1/chat/completions",
			`{"messages":[{"role":"user","content":"a"}],`+body+`}`); resp.StatusCode != 200 {
			t.Errorf("%s: %d %.300s", name, resp.StatusCode, answer)
		}
	}
}

// batchedLong is a server with room for long answers that takes no time.
func batchedLong() ServerOptions {
	o := batched()
	o.Engine.NumGPUBlocks, o.Engine.MaxModelLen, o.Engine.MaxNumSeqs, o.Engine.MaxNumBatchedTokens,
		o.Engine.BlockSize = 4096, 8192, 256, 8192, 16
	o.Engine.Timer = latency.Constant{TimeToFirstToken: machine.Microsecond, InterTokenLatency: machine.Microsecond}
	return o
}
