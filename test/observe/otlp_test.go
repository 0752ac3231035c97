package observe

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/batchprocessor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

var windtunnel string // path of the program

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

// kept holds the output of a collector, and stops it.
type kept struct {
	consumertest.TracesSink
	end func()
}

// collector starts a whole collector: its service with OTLP receivers for gRPC and HTTP, a batch processor, and an
// exporter that keeps the output. It returns when both ports answer.
func collector(t *testing.T) (sink *kept, byGRPC, byHTTP string) {
	t.Helper()
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	byGRPC, byHTTP = free(), free()
	sink = &kept{}
	keeping := exporter.NewFactory(component.MustNewType("keep"), func() component.Config { return &struct{}{} },
		exporter.WithTraces(func(ctx context.Context, set exporter.Settings, config component.Config) (exporter.Traces,
			error) {
			return exporterhelper.NewTraces(ctx, set, config, sink.ConsumeTraces)
		}, component.StabilityLevelStable))
	c, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo: component.NewDefaultBuildInfo(), DisableGracefulShutdown: true,
		Factories: func() (f otelcol.Factories, err error) {
			receiving, batching := otlpreceiver.NewFactory(), batchprocessor.NewFactory()
			return otelcol.Factories{
				Receivers:  map[component.Type]receiver.Factory{receiving.Type(): receiving},
				Processors: map[component.Type]processor.Factory{batching.Type(): batching},
				Exporters:  map[component.Type]exporter.Factory{keeping.Type(): keeping},
				Telemetry:  otelconftelemetry.NewFactory(),
			}, nil
		},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{
			ResolverSettings: confmap.ResolverSettings{
				ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
				URIs: []string{"yaml:" + strings.NewReplacer("GRPC", byGRPC, "HTTP", byHTTP).Replace(`
receivers: {otlp: {protocols: {grpc: {endpoint: GRPC}, http: {endpoint: HTTP}}}}
processors: {batch: {timeout: 100ms}}
exporters: {keep: {}}
service:
  telemetry: {metrics: {level: none}, logs: {level: error}}
  pipelines: {traces: {receivers: [otlp], processors: [batch], exporters: [keep]}}
`)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(context.Background()) }()
	sink.end = sync.OnceFunc(func() {
		c.Shutdown()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(sink.end)
	for c.GetState() != otelcol.StateRunning {
		select {
		case err := <-ended:
			sink.end = func() {}
			t.Fatalf("the collector does not start: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return sink, byGRPC, byHTTP
}

// span is one span with the name of its service.
type span struct {
	ptrace.Span
	service string
}

// received stops a collector and returns all spans that left its pipeline, including the last batch.
func received(sink *kept) (out []span) {
	sink.end()
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

// A collector accepts all spans of live and simulated runs, over gRPC and over HTTP, configured by the flag and by
// the real parts' environment variables. Every parent was sent, and the spans of the parts are connected as in llm-d.
func TestCollectorTakesSpans(t *testing.T) {
	for name, c := range map[string]struct {
		args   string
		env    func(grpc, http string) []string
		traces int
		spans  []string
	}{
		"sim over gRPC": {args: "sim ../../examples/pd.yaml -n 20 --otlp grpc://GRPC", traces: 20,
			spans: []string{"llm-d-epp gateway.request < windtunnel chat llama-3.1-8b",
				"llm-d-disagg-sidecar llm_d.pd_proxy.POST /v1/chat/completions < llm-d-epp gateway.request",
				"vllm-prefill llm_request < llm-d-disagg-sidecar HTTP POST",
				"vllm-decode llm_request < llm-d-disagg-sidecar HTTP POST"}},
		"sim over HTTP, behind an Envoy that traces": {args: "sim -n 20 --otlp http://HTTP --otlp-gateway egress",
			traces: 20,
			spans: []string{"envoy ingress < windtunnel chat llama-3.1-8b", "vllm llm_request < envoy router egress",
				"llm-d-epp gateway.request < windtunnel chat llama-3.1-8b"}},
		"run by the environment": {args: "run -n 5 --prefill 1ms..5ms", traces: 5,
			env: func(grpc, _ string) []string {
				return []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + grpc}
			},
			spans: []string{"vllm llm_request < llm-d-epp gateway.request",
				"llm-d-epp gateway.request < windtunnel chat llama-3.1-8b"}},
	} {
		t.Run(name, func(t *testing.T) {
			sink, grpc, http := collector(t)
			cmd := exec.CommandContext(t.Context(), windtunnel,
				strings.Fields(strings.NewReplacer("GRPC", grpc, "HTTP", http).Replace(c.args))...)
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
			if want := fmt.Sprintf("windtunnel: %d spans sent to ", len(list)); !strings.Contains(
				strings.ReplaceAll(errs.String(), ",", ""), want) {
				t.Errorf("the collector has %d spans\n%s", len(list), errs.String())
			}
			edges, traces := hanging(t, list)
			if traces != c.traces {
				t.Errorf("%d traces, want %d", traces, c.traces)
			}
			for _, want := range c.spans {
				if !edges[want] {
					t.Errorf("no %s", want)
				}
			}
		})
	}
}

// hanging returns the edges from child to parent spans, by name, and the number of traces. All parents are among the
// spans.
func hanging(t *testing.T, list []span, outside ...pcommon.SpanID) (edges map[string]bool, traces int) {
	t.Helper()
	of, ids := map[pcommon.TraceID]bool{}, map[pcommon.SpanID]span{}
	for _, s := range list {
		of[s.TraceID()] = true
		ids[s.SpanID()] = s
		if s.EndTimestamp() < s.StartTimestamp() {
			t.Errorf("%s ends before it begins", s.Name())
		}
	}
	if len(ids) != len(list) {
		t.Errorf("%d spans have %d ids", len(list), len(ids))
	}
	edges = map[string]bool{}
	for _, s := range list {
		if s.ParentSpanID().IsEmpty() {
			continue
		}
		p, ok := ids[s.ParentSpanID()]
		switch {
		case ok && p.TraceID() == s.TraceID():
			edges[s.service+" "+s.Name()+" < "+p.service+" "+p.Name()] = true
		case slices.Contains(outside, s.ParentSpanID()):
			edges[s.service+" "+s.Name()+" < outside"] = true
		default:
			t.Errorf("%s %s has a parent that nobody sent", s.service, s.Name())
		}
	}
	return edges, len(of)
}

// An endpoint picker in a process of its own joins the trace of the run's client, and the model server joins the
// picker's, by the propagated headers.
func TestPickerApart(t *testing.T) {
	sink, grpc, http := collector(t)
	cmd := exec.CommandContext(t.Context(), windtunnel, "run", "-n", "5", "--prefill", "1ms..5ms", "--otlp",
		"http://"+http, "--epp-command",
		`exec windtunnel epp --pool-name p --secure-serving=false --hold --config-text "$(windtunnel config --picker `+
			`--endpoints-file $ENDPOINTS_FILE)" --grpc-port $GRPC_PORT --grpc-health-port $GRPC_HEALTH_PORT `+
			`--metrics-port $METRICS_PORT`)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(windtunnel)+string(os.PathListSeparator)+os.Getenv("PATH"),
		"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT="+grpc, "WINDTUNNEL_CACHE="+cache(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// The request to check that the picker is there has a trace of its own.
	own := map[pcommon.TraceID]bool{}
	for _, s := range received(sink) {
		if s.service == "windtunnel" {
			own[s.TraceID()] = true
		}
	}
	edges, traces := hanging(t, slices.DeleteFunc(received(sink), func(s span) bool { return !own[s.TraceID()] }))
	for _, want := range []string{"llm-d-epp gateway.request < windtunnel chat llama-3.1-8b",
		"llm-d-epp pick_endpoints < llm-d-epp run_scheduler_profile", "vllm llm_request < llm-d-epp gateway.request"} {
		if !edges[want] {
			t.Errorf("no %s in %v", want, edges)
		}
	}
	if traces != 5 {
		t.Errorf("%d traces of 5 requests", traces)
	}
}

// cache returns the user's directory in which windtunnel keeps its Envoy.
func cache(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("WINDTUNNEL_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "windtunnel")
}

// A sidecar and a model server that run alone join a request's trace, the server by vLLM's own flag and the sidecar
// by pd-sidecar's.
func TestPartsAlone(t *testing.T) {
	sink, grpc, _ := collector(t)
	server := part(t, nil, regexp.MustCompile(`ready: http://127\.0\.0\.1:(\d+) `), "modelserver", "--", "--port", "0",
		"--model", "m", "--otlp-traces-endpoint", "grpc://"+grpc)
	proxy := part(t, []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + grpc},
		regexp.MustCompile(`windtunnel sidecar: http://127\.0\.0\.1:(\d+) `),
		"sidecar", "--port", "0", "--secure-proxy=false", "--tracing", "--model-server-port", server.port)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://127.0.0.1:"+proxy.port+"/v1/completions",
		strings.NewReader(`{"model":"m","prompt":"a","max_tokens":2}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	proxy.stop(t)
	server.stop(t)
	edges, traces := hanging(t, received(sink), pcommon.SpanID{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31})
	for _, want := range []string{"llm-d-disagg-sidecar llm_d.pd_proxy.POST /v1/completions < outside",
		"vllm llm_request < llm-d-disagg-sidecar HTTP POST"} {
		if !edges[want] {
			t.Errorf("no %s in %v", want, edges)
		}
	}
	if traces != 1 {
		t.Errorf("%d traces", traces)
	}
}

// running is a part that runs alone.
type running struct {
	cmd  *exec.Cmd
	port string
	rest chan struct{} // closed when it prints nothing more
}

// part starts a part and waits until it prints its address.
func part(t *testing.T, env []string, ready *regexp.Regexp, args ...string) *running {
	t.Helper()
	p := &running{cmd: exec.CommandContext(t.Context(), windtunnel, args...), rest: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	out, in := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = in, in
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := ""
	lines := bufio.NewScanner(out)
	go func() { _ = p.cmd.Wait(); in.Close() }()
	for lines.Scan() {
		said += lines.Text() + "\n"
		if m := ready.FindStringSubmatch(lines.Text()); m != nil {
			p.port = m[1]
			go func() {
				_, _ = io.Copy(io.Discard, out)
				close(p.rest)
			}()
			return p
		}
	}
	t.Fatalf("%s ended\n%s", args[0], said)
	return nil
}

// stop interrupts the part and waits for its end, at which it sends the last spans.
func (p *running) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-p.rest
}
