package virtual

import (
	"fmt"
	"math"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
	"github.com/windtunnel/windtunnel/scenario"
)

// The clients' measurements agree with the servers' histograms: as many tokens, the same time between them, the same
// time to the first and to the last, in total within 1 %, and also with separate prefill servers.
func TestClientsAgreeWithServers(t *testing.T) {
	for name, more := range map[string]string{"alone": "",
		"prefill and decode": "    sidecar: routing\n    disaggregation: {prefillReplicas: 2}\n"} {
		t.Run(name, func(t *testing.T) {
			s, err := scenario.Parse("../live/stack/testdata/test.yaml", fmt.Appendf(nil, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: default
    model: llama-3.1-8b
    flow: plain
    replicas: 3
%s    modelServer: {batching: continuous, accelerator: H100, outputTokens: 20..200, tokenizer: model}
workload: {requests: 200, rate: 30, stream: true, prompt: {characters: 200..6000}}
`, more))
			if err != nil {
				t.Fatal(err)
			}
			s.Hops = scenario.Hops{} // clients measure what lies between the parts, and servers do not
			var asked, first, last = map[string]machine.Time{}, map[string]machine.Time{}, map[string]machine.Time{}
			tokens := 0
			w, err := newWorld(s, record.Func(func(e record.Event) {
				at := e.Time
				switch {
				case e.Hop != record.Client:
				case e.Step == record.RequestSent:
					asked[e.Request] = at
				case e.Step == record.FirstTokenReceived:
					first[e.Request] = at
				case e.Step == record.LastTokenReceived:
					last[e.Request] = at
					n, _ := e.Details.Get("tokens").(int)
					tokens += n
				}
			}), Options{eachPage: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.run(nil); err != nil {
				t.Fatal(err)
			}
			var ttft, itl, e2e float64
			for id, at := range last {
				ttft += (first[id] - asked[id]).Seconds()
				itl += (at - first[id]).Seconds()
				e2e += (at - asked[id]).Seconds()
			}
			said := map[string]float64{}
			for i, sv := range w.pools[0].servers {
				if s.Pools[0].DeploymentOf(i).Prefills {
					continue
				}
				x := sv.core.Stats().At(w.now, &sv.metrics, sv.engine)
				page := metrics.NewCollector(func(string) bool { return true })
				x.Write(page)
				for family, f := range page.Take() {
					if n := len(f.Samples); n > 1 && !f.Typed {
						said[family+"_count"] += f.Samples[n-2].Value
						said[family+"_sum"] += f.Samples[n-1].Value
					} else if n == 1 {
						said[family] += f.Samples[0].Value
					}
				}
			}
			n := float64(len(last))
			near := func(what string, client, server, off float64) {
				t.Helper()
				if math.Abs(client-server) > off*server || server == 0 {
					t.Errorf("%s: clients measured %v, servers say %v", what, client, server)
				}
			}
			near("requests", n, said["vllm:e2e_request_latency_seconds_count"], 0)
			near("tokens", float64(tokens), said["vllm:generation_tokens_total"], 0)
			near("tokens between", float64(tokens)-n, said["vllm:inter_token_latency_seconds_count"], 0)
			near("time between tokens", itl, said["vllm:inter_token_latency_seconds_sum"], 0.01)
			if name == "alone" { // else the first token waits for a prefill that another server counts
				near("time to the first token", ttft, said["vllm:time_to_first_token_seconds_sum"], 0.01)
				near("time to the last token", e2e, said["vllm:e2e_request_latency_seconds_sum"], 0.01)
			}
		})
	}
}
