package stack

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/nightly"
)

// said lists the records of a run's model servers and clients of each request, without times, sizes and names.
func said(events []record.Event) map[string][]string {
	out := map[string][]string{}
	for _, e := range events {
		if e.Hop != record.Server && (e.Hop != record.Client || e.Step != record.Finished) || e.Request == "" {
			continue
		}
		line := string(e.Hop) + " " + string(e.Step)
		for _, d := range e.Details {
			if d.Key != "bytes" && d.Key != "fetched_us" {
				line += fmt.Sprintf(" %s=%v", d.Key, d.Value)
			}
		}
		out[e.Request] = append(out[e.Request], line)
	}
	for _, lines := range out {
		slices.Sort(lines) // hops of a live run record one moment in any order
	}
	return out
}

// For every option of a request a model server does the same in wall and in virtual time, and records it with the same
// details.
func TestBodiesLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for i, c := range []struct{ name, workload, server, want string }{
		{name: "min_tokens", workload: `, maxTokens: 40, bodyFields: '{"min_tokens": 30}'`, want: "tokens=30"},
		{name: "ignore_eos", workload: `, maxTokens: 40, bodyFields: '{"ignore_eos": true}'`,
			want: "tokens=40 finish_reason=length"},
		{name: "stop", workload: `, maxTokens: 200, bodyFields: '{"ignore_eos": true, "stop": ["q"]}'`,
			want: "finish_reason=stop"},
		{name: "stop tokens", workload: `, maxTokens: 20, bodyFields: '{"ignore_eos": true, "stop_token_ids": [1, ` +
			`2]}'`},
		{name: "several choices", workload: `, maxTokens: 7, bodyFields: '{"n": 3, "ignore_eos": true}'`,
			want: "tokens=21"},
		{name: "several choices whole",
			workload: `, stream: false, maxTokens: 7, bodyFields: '{"n": 3, "ignore_eos": true}'`, want: "tokens=21"},
		{name: "too many choices", workload: `, bodyFields: '{"n": 100000}'`, want: "status=400"},
		{name: "tools", workload: `, maxTokens: 30, bodyFields: '{"tool_choice": "required", "tools": [{"type": ` +
			`"function", "function": {"name": "f", "parameters": {"type": "object", "required": ["a"], "properties": ` +
			`{"a": {"type": "string"}}}}}]}'`, want: "finish_reason=tool_calls"},
		{name: "a schema", workload: `, maxTokens: 60, bodyFields: '{"response_format": {"type": "json_schema", ` +
			`"json_schema": {"name": "p", "schema": {"type": "object", "required": ["a", "b"], "properties": {"a": ` +
			`{"type": "string"}, "b": {"type": "integer"}}}}}}'`, want: "finish_reason=stop"},
		{name: "a schema cut", workload: `, maxTokens: 2, bodyFields: '{"response_format": {"type": "json_schema", ` +
			`"json_schema": {"name": "p", "schema": {"type": "string", "minLength": 20}}}}'`,
			want: "tokens=2 finish_reason=length"},
		{name: "a refused schema",
			workload: `, bodyFields: '{"structured_outputs": {"json": {"type": "array", "uniqueItems": true}}}'`,
			want:     "status=400"},
		{name: "priority", workload: `, bodyFields: '{"priority": -5}'`, server: ", schedulingPolicy: priority"},
		{name: "too little cached", workload: `, bodyFields: '{"cache_hit_threshold": 0.9}'`, want: "server aborted"},
		{name: "echo", workload: `, api: completions, stream: false, maxTokens: 3, bodyFields: '{"echo": true, ` +
			`"logprobs": 2}'`, want: "tokens=3"},
		{name: "a completion", workload: `, api: completions, maxTokens: 5`, want: "tokens=5"},
		{name: "truncated", workload: `, bodyFields: '{"truncate_prompt_tokens": 10}'`, want: "prompt_tokens=10"},
		{name: "a seed", workload: `, maxTokens: 5, bodyFields: '{"seed": 7}'`},
		{name: "too long", workload: `, maxTokens: 100000`, want: "status=400"},
		{name: "a bad field", workload: `, bodyFields: '{"temperature": -1}'`, want: "status=400"},
		{name: "a stranger's cache",
			workload: `, bodyFields: '{"kv_transfer_params": {"do_remote_prefill": true, "remote_engine_id": "e", ` +
				`"remote_block_ids": [1], "remote_host": "192.0.2.1", "remote_port": 1}}'`, want: "status=403"},
		{name: "a stranger's handle", workload: `, bodyFields: '{"kv_handle": "kv://192.0.2.1:1/e/1-1-4"}'`,
			want: "status=403"},
		{name: "a peer that is not there",
			workload: `, bodyFields: '{"kv_transfer_params": {"do_remote_prefill": true, "remote_engine_id": "e", ` +
				`"remote_block_ids": [1], "remote_host": "127.9.9.9", "remote_port": 1}}'`, want: "status=500"},
		{name: "the handle of one that is not there",
			workload: `, bodyFields: '{"kv_handle": "kv://127.9.9.9:1/e/1-1-4"}'`},
		{name: "a field of the wrong type", workload: `, bodyFields: '{"priority": "high"}'`, want: "status=400"},
	} {
		for k, kind := range []string{"held", "plain"} {
			if !nightly.Each(i+k, 2) { // by day each body in one flow
				continue
			}
			t.Run(c.name+" "+kind, func(t *testing.T) {
				t.Parallel()
				live, played := liveAsVirtual(t, fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    flow: %s
    modelServer: {batching: continuous, prefill: 5ms, interTokenLatency: 1ms, outputTokens: 12, numGPUBlocks: 4096, maxModelLen: 8192%s}
workload: {requests: 2, timeout: 5s, prompt: {characters: 400}%s}
`, kind, c.server, c.workload))
				got := said(played)
				if d := cmp.Diff(said(live), got); d != "" {
					t.Errorf("in wall time (-) and in virtual time (+):\n%s", d)
				}
				if all := fmt.Sprint(got); !strings.Contains(all, c.want) {
					t.Errorf("no %q in %s", c.want, all)
				}
			})
		}
	}
}

// A prompt that one tenant has cached is new for another, in wall and in virtual
// time.
func TestCacheSaltsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	live, played := liveAsVirtual(t, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    flow: plain
    modelServer: {batching: continuous, prefill: 5ms, interTokenLatency: 1ms, outputTokens: 2, numGPUBlocks: 4096}
workload:
  requests: 12
  prompt: {text: "`+strings.Repeat("all ask the same. ", 20)+`"}
  classes:
    - {name: one, share: 40%, bodyFields: '{"cache_salt": "one"}'}
    - {name: another, share: 40%, bodyFields: '{"cache_salt": "another"}'}
    - {name: without, share: 20%}
`)
	for _, events := range [][]record.Event{live, played} {
		of, misses := map[string]string{}, map[string]int{} // by request, by class
		for _, e := range events {
			switch {
			case e.Step == record.RequestSent:
				of[e.Request] = fmt.Sprint(e.Details.Get("class"))
			case e.Details.Get("cached_tokens") == 0:
				misses[of[e.Request]]++
			}
		}
		if want := map[string]int{"one": 1, "another": 1, "without": 1}; !cmp.Equal(misses, want) {
			t.Errorf("prompts of which nothing was cached: %v, want %v", misses, want)
		}
	}
}
