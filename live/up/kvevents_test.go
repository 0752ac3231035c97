package up

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

const indexing = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: token-producer, parameters: {estimate: {}}}
- type: precise-prefix-cache-producer
  parameters:
    tokenProcessorConfig: {blockSizeTokens: 16}
    kvEventsConfig: {zmqEndpoint: "tcp://0.0.0.0:5557", discoverPods: false}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
- {type: max-score-picker}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: prefix-cache-scorer}, {pluginRef: max-score-picker}]}
`

// KV events reach the picker behind the Service that a model server's flags name, from servers by their addresses and
// ports, also after the picker's configuration has changed; an address where nothing listens is reported.
func TestKVEventsToPickersService(t *testing.T) {
	t.Parallel()
	const to = "tcp://epp-a.default.svc.cluster.local:5557"
	text := func(config string) string {
		simulators := strings.Replace(servers("a", 2, ""), `["--model", "a"]`,
			`["--model", "a", --enable-kvcache, --zmq-endpoint=`+to+`]`, 1)
		engine := strings.NewReplacer(`["--model", "b"]`, `[vllm, serve, b, --kv-events-config, '{"enable_kv_cache_events":`+
			` true, "publisher": "zmq", "endpoint": "`+to+`"}']`, "llm-d-inference-sim", "llm-d-cuda",
			"{pool: b}", "{pool: a, engine: b}").Replace(servers("b", 1, ""))
		lost := strings.Replace(servers("c", 1, ""), `["--model", "c"]`,
			`["--model", "c", --enable-kvcache, --zmq-endpoint=tcp://epp-a:9002]`, 1)
		_, engine, _ = strings.Cut(engine, "---\napiVersion: apps")
		picker := strings.Replace(pickerWith("a", config, ""), "[{port: 9002}]",
			"[{port: 9002, name: grpc}, {port: 5557, name: events}]", 1)
		return oneGateway() + simulators + "---\napiVersion: apps" + engine + lost + leadTo("/v1", pool("a")) + picker
	}
	r := bring(t, objectsOf(t, text(indexing)))
	if got := strings.Join(r.notes, "\n"); strings.Count(got, "its KV events reach nobody") != 1 ||
		!strings.Contains(got, "nothing listens at tcp://epp-a:9002") {
		t.Errorf("expected one note of events that reach nobody, got\n%s", got)
	}
	var first []PodAddress
	for round, config := range []string{indexing, strings.Replace(indexing, "max-score-picker", "random-picker", 2)} {
		if err := r.Apply(t.Context(), objectsOf(t, text(config))); err != nil {
			t.Fatal(err)
		}
		var want []string
		var serving []PodAddress
		pods := r.Addresses().Pods
		if first = slices.Concat(first, pods); fmt.Sprint(first[:len(pods)]) != fmt.Sprint(pods) {
			t.Errorf("an edit of the picker's configuration has moved pods: %v", pods)
		}
		for _, p := range pods {
			at := p.Ports["8000"]
			if strings.HasPrefix(p.Name, "c-") {
				continue
			}
			want, serving = append(want, at), append(serving, p)
		}
		slices.Sort(want)
		prompts := 0
		// Servers connect again when the picker's configuration changes. Events that they send before are lost.
		eventually.Is(t, "the picker knows the blocks of each server by its address", func() bool {
			for _, p := range serving {
				prompts++
				body := fmt.Sprintf(`{"model":"%s","max_tokens":1,"messages":[{"role":"user","content":"%s"}]}`, p.Model,
					strings.Repeat(fmt.Sprint("round ", round, " ", prompts, " "), 60))
				if a := r.post("http://"+p.Ports["8000"]+"/v1/chat/completions", body, "Content-Type",
					"application/json"); a.status != http.StatusOK {
					t.Fatalf("%d: %s", a.status, a.body)
				}
			}
			var got []string
			for _, state := range r.pickers["pool/default/a/0"].server.Picking().KVState() {
				for pod, blocks := range state.Blocks {
					if len(blocks) > 0 {
						got = append(got, pod)
					}
				}
			}
			slices.Sort(got)
			return slices.Equal(got, want)
		})
	}
}
