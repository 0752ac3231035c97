package stack

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// withTokenizer is a pool whose servers have a real tokenizer and the model's own
// chat template; prefill elsewhere where that is asked for.
func withTokenizer(t *testing.T, more string) *scenario.Scenario {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse(filepath.Join(here, "testdata", "test.yaml"), fmt.Appendf(nil, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: default
    model: m
    flow: plain
    replicas: 2
%s    modelServer: {batching: continuous, prefill: 2ms, interTokenLatency: 1ms, outputTokens: 5..12, tokenizer: model}
workload: {requests: 6, concurrency: 1, prompt: {characters: 300..600}}
`, more))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var tokenizerPools = map[string]string{
	// In turn: metrics that other scorers read depend on when they were read.
	"alone":              "    epp: {config: {plugins: [{type: round-robin-picker}]}}\n",
	"prefill and decode": "    sidecar: routing\n    disaggregation: {prefillReplicas: 1}\n",
}

// A scenario's tokenizer and chat template count in both times: the same prompts
// have the same tokens, and the answers the same words.
func TestTokenizerLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for name, more := range tokenizerPools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, withTokenizer(t, more), nil)
			live := r.load()
			r.settled()
			var played []record.Event
			if err := virtual.Run(withTokenizer(t, more),
				record.Func(func(e record.Event) { played = append(played, e) }),
				nil); err != nil {
				t.Fatal(err)
			}
			said := func(events []record.Event) map[string][]any {
				out := map[string][]any{}
				for _, e := range events {
					for _, key := range []string{"prompt_tokens", "token", "tokens", "cached_tokens"} {
						if v := e.Details.Get(key); v != nil && e.Hop == record.Server {
							out[e.Request+" "+string(e.Step)] = append(out[e.Request+" "+string(e.Step)], v)
						}
					}
				}
				return out
			}
			a, b := fmt.Sprint(said(live)), fmt.Sprint(said(played))
			if a != b || len(a) < 100 {
				t.Errorf("live\n%s\nvirtual\n%s", a, b)
			}
		})
	}
}

// Whoever counts with the model's tokenizer, as benchmarks do, comes to what the
// servers say: tokens of prompts by the chat template, tokens of answers, and one
// chunk for each; P/D included.
func TestClientsCountAsServers(t *testing.T) {
	t.Parallel()
	for name, more := range tokenizerPools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withTokenizer(t, more)
			r := start(t, s, nil)
			x := compiled(t, s).Pools[0].Tokens
			tokenizer, template := x.Tokenizer, x.Template
			var prompts, answers, chunks, requests int
			for i := range 8 {
				content := strings.Repeat(fmt.Sprintf("How much is %d times seven? ", i), 10+i)
				a := r.post("/v1/chat/completions",
					fmt.Sprintf(`{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":%d,`+
						`"ignore_eos":true,"messages":[{"role":"user","content":%q}]}`, 5+3*i, content))
				if a.status != 200 {
					t.Fatalf("%+v", a)
				}
				text, counted := "", usage{}
				for lines := bufio.NewScanner(strings.NewReader(a.body)); lines.Scan(); {
					var c chunk
					data, ok := strings.CutPrefix(lines.Text(), "data: ")
					if !ok || json.Unmarshal([]byte(data), &c) != nil {
						continue
					}
					if len(c.Choices) > 0 && c.Choices[0].Delta.Content != "" {
						text += c.Choices[0].Delta.Content
						chunks++
					}
					if c.Usage != nil {
						counted = *c.Usage
					}
				}
				if n := tokens.Count(tokenizer, text); n != counted.Completion || n != 5+3*i {
					t.Errorf("%q has %d tokens, the server counts %d", text, n, counted.Completion)
				}
				prompt, err := template.Render(conversationOf(content), nil)
				if err != nil {
					t.Fatal(err)
				}
				if n := tokens.Count(tokenizer, prompt); n != counted.Prompt {
					t.Errorf("the prompt has %d tokens, the server counts %d", n, counted.Prompt)
				}
				prompts, answers, requests = prompts+counted.Prompt, answers+counted.Completion, requests+1
			}
			decoded := s.Pools[0].Disaggregation.PrefillReplicas > 0
			sum := func(name string) (total float64) {
				for i, e := range r.Endpoints {
					if decoded && s.Pools[0].DeploymentOf(i).Prefills {
						continue
					}
					total += sample(t, get(t, "http://"+e+"/metrics"), name)
				}
				return total
			}
			for _, c := range []struct {
				series string
				want   int
			}{
				{"vllm:prompt_tokens_total", prompts}, {"vllm:request_prompt_tokens_sum", prompts},
				{"vllm:generation_tokens_total", answers}, {"vllm:request_generation_tokens_sum", answers},
				{"vllm:time_to_first_token_seconds_count", requests},
				{"vllm:e2e_request_latency_seconds_count", requests},
				{"vllm:inter_token_latency_seconds_count", answers - requests},
			} {
				if got := int(sum(c.series)); got != c.want {
					t.Errorf("%s is %d, clients counted %d", c.series, got, c.want)
				}
			}
			if chunks != answers {
				t.Errorf("%d chunks with text for %d tokens", chunks, answers)
			}
		})
	}
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
}

type chunk struct {
	Choices []struct{ Delta struct{ Content string } }
	Usage   *usage
}

// sample is the value of one series of a page, whatever its labels.
func sample(t *testing.T, page, name string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `\{[^}]*\} (\S+)$`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no %s", name)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func conversationOf(content string) *chattemplate.Conversation {
	return &chattemplate.Conversation{Messages: []chattemplate.Message{{Role: "user", Content: content}}}
}
