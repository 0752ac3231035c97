package stack

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// The servers get the body that the endpoint picker rewrote, also the two behind a sidecar: the model that the rewrite
// header names, and a prompt of as many tokens, in both times.
func TestRewritesLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for name, pool := range map[string]string{"alone": "", "beside a sidecar": "    sidecar: routing\n",
		"apart": "    sidecar: routing\n    disaggregation: {prefillReplicas: 1, holdBlocks: 2s}\n",
		"through a cache": "    sidecar: routing\n    disaggregation: {prefillReplicas: 1, holdBlocks: 2s, " +
			"connector: lmcache}\n"} {
		for _, stream := range []string{"true", "false"} {
			t.Run(name+" "+stream, func(t *testing.T) {
				t.Parallel()
				live, played := liveAsVirtual(t, fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    model: m
    flow: plain
%s    modelServer: {batching: continuous, prefill: 20ms, interTokenLatency: 2ms, outputTokens: 5, numGPUBlocks: 4096, maxModelLen: 16384, loraAdapters: [sql]}
workload: {requests: 3, stream: %s, prompt: {characters: 900}, headers: [{name: x-gateway-model-name-rewrite, value: sql}]}
`, pool, stream))
				got := said(played)
				if d := cmp.Diff(said(live), got); d != "" {
					t.Errorf("in wall time (-) and in virtual time (+):\n%s", d)
				}
				if all := fmt.Sprint(got); !strings.Contains(all, "model=sql") || strings.Contains(all, "model=m ") {
					t.Errorf("the servers were asked for another model: %s", all)
				}
			})
		}
	}
}

// creation is when an answer was made, which differs between the times.
var creation = regexp.MustCompile(`"created(_at)?":\d+`)

// A client gets the same bytes in both times: answers, streamed or whole, those of a rewritten model, and refusals by
// the endpoint picker in either of its forms, by a server, and by Envoy.
func TestAnswersByteForByte(t *testing.T) {
	t.Parallel()
	for i, c := range []struct{ name, pool, workload, want string }{
		{name: "streamed", want: "data: [DONE]"},
		{name: "with usage", workload: ", includeUsage: true", want: `"usage":{`},
		{name: "whole", workload: ", stream: false", want: `"finish_reason":"stop"`},
		{name: "a completion", workload: ", api: completions, stream: false", want: `"text_completion"`},
		{name: "a completion streamed", workload: ", api: completions", want: "data: [DONE]"},
		{name: "a message", workload: ", api: messages, stream: false", want: `"stop_reason":"end_turn"`},
		{name: "a message streamed", workload: ", api: messages", want: `"type":"message_stop"`},
		{name: "a message that a holding picker passes on", pool: "flow: held", workload: ", api: messages",
			want: `"type":"message_stop"`},
		{name: "a message apart", pool: "sidecar: routing, disaggregation: {prefillReplicas: 1, holdBlocks: 2s}",
			workload: ", api: messages, stream: false", want: `"output_tokens":`},
		{name: "a message refused by a server", workload: `, api: messages, bodyFields: '{"temperature": -1}'`,
			want: `{"type":"error","error":{"type":"invalid_request_error"`},
		{name: "a message refused by the picker", pool: "epp: {config: " + nobody + "}", workload: ", api: messages",
			want: `"type":"rate_limit_error"`},
		{name: "a response", workload: ", api: responses, stream: false", want: `"object":"response"`},
		{name: "a response streamed", workload: ", api: responses", want: `"type":"response.completed"`},
		{name: "a response refused by a server", workload: `, api: responses, bodyFields: '{"temperature": -1}'`,
			want: `"error":{`},
		{name: "a rewritten model",
			workload: ", stream: false, headers: [{name: x-gateway-model-name-rewrite, value: sql}]",
			want:     `"model":"m"`},
		{name: "a rewritten model streamed", workload: ", headers: [{name: x-gateway-model-name-rewrite, value: sql}]",
			want: `"model":"m"`},
		{name: "apart", pool: "sidecar: routing, disaggregation: {prefillReplicas: 1, holdBlocks: 2s}",
			workload: ", includeUsage: true", want: `"cached_tokens":`},
		{name: "apart and whole", pool: "sidecar: routing, disaggregation: {prefillReplicas: 1, holdBlocks: 2s}",
			workload: ", stream: false", want: `"cached_tokens":`},
		{name: "refused by a server", workload: `, bodyFields: '{"temperature": -1}'`,
			want: `"type":"BadRequestError"`},
		{name: "refused by the picker", pool: "epp: {config: " + nobody + "}", want: `"error":{`},
		{name: "refused by the picker in its own form", pool: "epp: {errors: epp, config: " + nobody + "}",
			want: "inference error: "},
		{name: "a server that is gone", pool: "modelServer: {faults: [{fault: refuse}]}", want: ""},
	} {
		if !nightly.Each(i, 3) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := "modelServer: {batching: continuous, prefill: 5ms, interTokenLatency: 1ms, outputTokens: 5, " +
				"numGPUBlocks: 4096, maxModelLen: 8192, loraAdapters: [sql]}, "
			if strings.Contains(c.pool, "modelServer:") {
				server = ""
			}
			kind := "flow: plain, "
			if strings.Contains(c.pool, "flow:") {
				kind = ""
			}
			parse := func() *scenario.Scenario {
				s, err := scenario.Parse("test.yaml", fmt.Appendf(nil, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools: [{name: pool, model: m, %s%s%s}]
workload: {requests: 2, timeout: 5s, prompt: {characters: 400}, maxTokens: 6%s}
`, kind, server, c.pool, c.workload))
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			played := map[string]string{}
			_, err := virtual.Play(parse(), nil,
				virtual.Options{Answers: func(request string, piece []byte) { played[request] += string(piece) }})
			if err != nil {
				t.Fatal(err)
			}
			r := start(t, parse(), nil)
			load := parse().Generator()
			load.Write()
			for i := range 2 {
				q := load.Conversation(i, i).Request()
				head := []string{"X-Request-Id", q.ID}
				for _, h := range q.Header {
					head = append(head, h.Name, h.Value)
				}
				a := r.post(q.Path, string(q.Bytes()), head...)
				if a.err != nil {
					t.Fatal(a.err)
				}
				live, sim := creation.ReplaceAllString(a.body, ""), creation.ReplaceAllString(played[q.ID], "")
				if d := cmp.Diff(live, sim); d != "" {
					t.Errorf("%s: in wall time (-) and in virtual time (+):\n%s", q.ID, d)
				}
				if !strings.Contains(sim, c.want) {
					t.Errorf("no %q in %s", c.want, sim)
				}
			}
		})
	}
}

// nobody is a picker that finds no server good enough.
const nobody = `{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig,
  plugins: [{type: by-label-selector, name: none, parameters: {matchLabels: {no: such}}}, {type: queue-scorer}, {type: max-score-picker}],
  schedulingProfiles: [{name: default, plugins: [{pluginRef: none}, {pluginRef: queue-scorer}, {pluginRef: max-score-picker}]}]}`

// Whom the picker refuses learns it by the same words in both times, in either form of its errors.
func TestErrorFormsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for _, form := range []scenario.ErrorStyle{scenario.OpenAIErrors, scenario.EPPErrors} {
		for _, kind := range []string{"held", "plain"} {
			t.Run(string(form)+" "+kind, func(t *testing.T) {
				t.Parallel()
				live, played := liveAsVirtual(t, fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools: [{name: pool, flow: %s, epp: {errors: %s, config: %s}}]
workload: {requests: 2}
`, kind, form, nobody))
				a, b := ended(live), ended(played)
				if d := cmp.Diff(a, b); d != "" {
					t.Errorf("live (-) and virtual (+) differ: %s", d)
				}
				if all := fmt.Sprint(a); strings.Contains(all, "inference error") != (form == scenario.EPPErrors) ||
					strings.Contains(all, string(record.Completed)) {
					t.Errorf("%s", all)
				}
			})
		}
	}
}

// Conversations by the other APIs continue from the answers, in both times, and also through a sidecar's two servers.
func TestOtherAPIsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for _, api := range []string{"messages", "responses"} {
		for name, pool := range map[string]string{"alone": "",
			"apart": ", sidecar: routing, disaggregation: {prefillReplicas: 1, holdBlocks: 2s}"} {
			t.Run(api+" "+name, func(t *testing.T) {
				t.Parallel()
				live, played := liveAsVirtual(t, fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools: [{name: pool, model: m, flow: plain, modelServer: {batching: continuous, prefill: 20ms, interTokenLatency: 2ms, outputTokens: 5, numGPUBlocks: 4096, maxModelLen: 16384}%s}]
workload: {requests: 3, api: %s, maxTokens: 6, conversations: {turns: 3}, prompt: {characters: 900}}
`, pool, api))
				got := said(played)
				if d := cmp.Diff(said(live), got); d != "" {
					t.Errorf("in wall time (-) and in virtual time (+):\n%s", d)
				}
				a, b := ended(live), ended(played)
				if d := cmp.Diff(a, b); d != "" {
					t.Errorf("in wall time (-) and in virtual time (+):\n%s", d)
				}
				if all := fmt.Sprint(b); strings.Count(all, string(record.Completed)) != 3 {
					t.Errorf("%s", all)
				}
			})
		}
	}
}
