package observe

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

var windtunnel string // the program

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "windtunnel-observe-")
	if err != nil {
		panic(err)
	}
	windtunnel = filepath.Join(dir, "windtunnel")
	cmd := exec.Command("go", "build", "-o", windtunnel, "./cmd/windtunnel")
	cmd.Dir, cmd.Stderr = filepath.Join("..", ".."), os.Stderr
	if err := cmd.Run(); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// collector starts a collector's OTLP receiver, by gRPC and HTTP.
func collector(t *testing.T) (sink *consumertest.TracesSink, grpc, http string) {
	t.Helper()
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	grpc, http = free(), free()
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	if err := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{"grpc": map[string]any{"endpoint": grpc}, "http": map[string]any{"endpoint": http}}}).Unmarshal(config); err != nil {
		t.Fatal(err)
	}
	sink = new(consumertest.TracesSink)
	r, err := factory.CreateTraces(t.Context(), receivertest.NewNopSettings(factory.Type()), config, sink)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return sink, grpc, http
}

// span is one with who sent it.
type span struct {
	ptrace.Span
	service string
}

func received(sink *consumertest.TracesSink) (out []span) {
	for _, traces := range sink.AllTraces() {
		for _, resource := range traces.ResourceSpans().All() {
			service, _ := resource.Resource().Attributes().Get("service.name")
			for _, scope := range resource.ScopeSpans().All() {
				for _, s := range scope.Spans().All() {
					out = append(out, span{s, service.Str()})
				}
			}
		}
	}
	return out
}

// A collector takes all spans of runs in both times, over gRPC and over HTTP, by the flag
// and by the real parts' environment; every parent was sent, and the parts hang together as
// they do in llm-d.
func TestCollectorTakesSpans(t *testing.T) {
	for name, c := range map[string]struct {
		args   string
		env    func(grpc, http string) []string
		traces int
		spans  []string
	}{
		"sim over gRPC": {args: "sim ../../examples/pd.yaml -n 20 --otlp grpc://GRPC", traces: 20,
			spans: []string{"llm-d-epp gateway.request < windtunnel chat llama-3.1-8b", "llm-d-disagg-sidecar llm_d.pd_proxy.POST /v1/chat/completions < llm-d-epp gateway.request", "vllm-prefill llm_request < llm-d-disagg-sidecar HTTP POST", "vllm-decode llm_request < llm-d-disagg-sidecar HTTP POST"}},
		"sim over HTTP, behind an Envoy that traces": {args: "sim -n 20 --otlp http://HTTP --otlp-gateway egress", traces: 20,
			spans: []string{"envoy ingress < windtunnel chat llama-3.1-8b", "vllm llm_request < envoy router egress", "llm-d-epp gateway.request < windtunnel chat llama-3.1-8b"}},
		"run by the environment": {args: "run -n 5 --prefill 1ms..5ms", traces: 5,
			env:   func(grpc, _ string) []string { return []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + grpc} },
			spans: []string{"vllm llm_request < llm-d-epp gateway.request", "llm-d-epp gateway.request < windtunnel chat llama-3.1-8b"}},
	} {
		t.Run(name, func(t *testing.T) {
			sink, grpc, http := collector(t)
			cmd := exec.CommandContext(t.Context(), windtunnel, strings.Fields(strings.NewReplacer("GRPC", grpc, "HTTP", http).Replace(c.args))...)
			cmd.Env = os.Environ()
			if c.env != nil {
				cmd.Env = append(cmd.Env, c.env(grpc, http)...)
			}
			var errs bytes.Buffer
			cmd.Stderr = &errs
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, errs.String())
			}
			list := received(sink)
			if want := fmt.Sprintf("windtunnel: %d spans sent to ", len(list)); !strings.Contains(errs.String(), want) {
				t.Errorf("the collector has %d spans\n%s", len(list), errs.String())
			}
			traces, ids := map[pcommon.TraceID]bool{}, map[pcommon.SpanID]span{}
			for _, s := range list {
				traces[s.TraceID()] = true
				ids[s.SpanID()] = s
				if s.EndTimestamp() < s.StartTimestamp() {
					t.Errorf("%s ends before it begins", s.Name())
				}
			}
			if len(traces) != c.traces || len(ids) != len(list) {
				t.Errorf("%d traces, and %d ids of %d spans", len(traces), len(ids), len(list))
			}
			edges := map[string]bool{}
			for _, s := range list {
				if s.ParentSpanID().IsEmpty() {
					continue
				}
				p, ok := ids[s.ParentSpanID()]
				if !ok || p.TraceID() != s.TraceID() {
					t.Fatalf("%s has a parent that nobody sent", s.Name())
				}
				edges[s.service+" "+s.Name()+" < "+p.service+" "+p.Name()] = true
			}
			for _, want := range c.spans {
				if !edges[want] {
					t.Errorf("no %s", want)
				}
			}
		})
	}
}
