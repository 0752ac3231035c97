package trace

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spanLines are three requests in OTLP's JSON: a client's span around a model server's; a prefill and a decode leg; one
// that failed. The third message's request is the earliest.
const spanLines = `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.instance.id","value":{"stringValue":"pod-0"}}]},"scopeSpans":[{"spans":[
 {"traceId":"a1","spanId":"01","name":"chat","startTimeUnixNano":"1700000010000000000","attributes":[{"key":"gen_ai.usage.input_tokens","value":{"intValue":"200"}},{"key":"gen_ai.usage.output_tokens","value":{"intValue":"20"}},{"key":"gen_ai.request.model","value":{"stringValue":"m"}}]},
 {"traceId":"a1","spanId":"02","parentSpanId":"01","name":"gateway.request","startTimeUnixNano":"1700000010100000000","attributes":[]},
 {"traceId":"a1","spanId":"03","parentSpanId":"02","name":"llm_request","startTimeUnixNano":"1700000010200000000","attributes":[{"key":"gen_ai.usage.prompt_tokens","value":{"intValue":200}},{"key":"gen_ai.usage.completion_tokens","value":{"intValue":20}},{"key":"gen_ai.usage.cached_tokens","value":{"intValue":130}}]}]}]}]}
{"resourceSpans":[{"scopeSpans":[{"spans":[
 {"traceId":"b2","spanId":"11","parentSpanId":"10","startTimeUnixNano":"1700000012000000000","attributes":[{"key":"gen_ai.request.id","value":{"stringValue":"r"}},{"key":"gen_ai.usage.prompt_tokens","value":{"intValue":300}},{"key":"gen_ai.usage.completion_tokens","value":{"intValue":1}}]},
 {"traceId":"b2","spanId":"12","parentSpanId":"10","startTimeUnixNano":"1700000013000000000","attributes":[{"key":"gen_ai.request.id","value":{"stringValue":"r"}},{"key":"gen_ai.usage.prompt_tokens","value":{"intValue":300}},{"key":"gen_ai.usage.completion_tokens","value":{"intValue":30}}]}]}]}]}
{"resourceSpans":[{"scopeSpans":[{"spans":[
 {"traceId":"c3","spanId":"21","startTimeUnixNano":1700000009000000000,"attributes":[{"key":"gen_ai.usage.input_tokens","value":{"intValue":150}},{"key":"gen_ai.usage.output_tokens","value":{"intValue":15}},{"key":"gen_ai.request.model","value":{"stringValue":"m"}}]},
 {"traceId":"d4","spanId":"31","startTimeUnixNano":1700000014000000000,"status":{"code":2},"attributes":[{"key":"gen_ai.usage.input_tokens","value":{"intValue":10}},{"key":"gen_ai.usage.output_tokens","value":{"intValue":3}}]}]}]}]}
`

// Spans that describe one request are one request, at the time of the outermost span with tokens. A prompt that was
// cached in part begins like an earlier one of its model.
func TestSpans(t *testing.T) {
	got, err := Read(strings.NewReader(spanLines), Options{Format: OTLP, Most: 100, Speedup: 1})
	if err != nil || len(got.Requests) != 3 {
		t.Fatalf("%v, %+v", err, got)
	}
	for i, want := range []struct {
		at            float64
		input, output int
	}{{0, 150, 15}, {1, 200, 20}, {3, 300, 30}} {
		r := got.Requests[i]
		if r.At.Seconds() != want.at || r.Prompt[0].Bytes != 4*want.input || r.Output != want.output {
			t.Errorf("request %d: found %+v; expected %+v", i, r, want)
		}
	}
	first, second := got.Requests[0].Prompt[0].Heads, got.Requests[1].Prompt[0].Heads
	if !slices.Equal(first[:2], second[:2]) || first[2] == second[2] || len(second) != 4 {
		t.Errorf("found heads %v and %v; expected 130 cached tokens to be two equal blocks of 64", first, second)
	}
	all := strings.Join(got.Assumed, "\n")
	for _, want := range []string{"in whole 64 tokens", "1 servers answered them", "1 requests without an answer"} {
		if !strings.Contains(all, want) {
			t.Errorf("found %q; expected %q", all, want)
		}
	}
}

// Protobuf, one message or several with their lengths, is read as JSON is.
func TestSpansInProtobuf(t *testing.T) {
	number := func(name string, v int64) *commonpb.KeyValue {
		return &commonpb.KeyValue{Key: name,
			Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: v}}}
	}
	message := func(at uint64, failed bool) []byte {
		s := &tracepb.Span{TraceId: []byte{1, byte(at)}, SpanId: []byte{2}, StartTimeUnixNano: at * 1e9,
			Attributes: []*commonpb.KeyValue{number("gen_ai.usage.input_tokens", 100),
				number("gen_ai.usage.output_tokens", int64(at))}}
		if failed {
			s.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
		}
		data, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{
			{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{s}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	read := func(data []byte) *Trace {
		t.Helper()
		got, err := Read(strings.NewReader(string(data)), Options{Format: OTLP, Most: 100, Speedup: 1})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := read(message(5, false)); len(got.Requests) != 1 || got.Requests[0].Output != 5 {
		t.Errorf("found %+v", got)
	}
	var file []byte
	for _, m := range [][]byte{message(5, false), message(6, true), message(7, false)} {
		file = append(binary.BigEndian.AppendUint32(file, uint32(len(m))), m...)
	}
	if got := read(file); len(got.Requests) != 2 || got.Requests[1].At.Seconds() != 2 || got.Requests[1].Output != 7 {
		t.Errorf("found %+v", got)
	}
	_, err := Read(strings.NewReader(string(file[:len(file)-1])), Options{Format: OTLP, Most: 100, Speedup: 1})
	if err == nil || !strings.Contains(err.Error(), "message 3") {
		t.Errorf("found %v; expected the message that is cut", err)
	}
}

// Envoy's log is read by the names of its fields, or by the command operators of its format. Tokens count where they
// are logged, and bytes otherwise.
func TestEnvoyLog(t *testing.T) {
	const own = `{"t": "%START_TIME(%s.%3f)%", "u": {"in": "%DYNAMIC_METADATA(io.envoy.ai_gateway:llm_input_token)%", ` +
		`"out": "%DYNAMIC_METADATA(io.envoy.ai_gateway:llm_output_token)%"}, "c": "%RESPONSE_CODE%", ` +
		`"m": "%REQ(:METHOD)%", "pages": "%BYTES_SENT%"}`
	for _, x := range []struct {
		name, format, text string
		at                 float64
		input, output      int
		assumed            string
	}{
		{"names", "", `{"start_time":"2024-03-01T12:00:00.000Z","method":"POST","response_code":200,"llm_input_token":"100","llm_output_token":9,"llm_total_token":109,"bytes_sent":9999}
{"start_time":"2024-03-01T12:00:01.500Z","method":"POST","response_code":503,"bytes_received":40,"bytes_sent":90}
{"start_time":"2024-03-01T12:00:02.500Z","method":"POST","response_code":200,"llm_input_token":"120","llm_output_token":11}
`, 2.5, 120, 11, "1 requests without an answer"},
		{"bytes", "", `{"start_time":"2024-03-01T12:00:00Z","method":"POST","response_code":"200","bytes_received":41,"bytes_sent":2200,"upstream_host":"10.0.0.1:8000"}
{"start_time":"2024-03-01T12:00:00.2Z","method":"GET","response_code":"200","bytes_received":0,"bytes_sent":900}
{"start_time":"2024-03-01T12:00:00.250Z","method":"POST","response_code":"200","bytes_received":400,"bytes_sent":80,"content-type":"application/json","upstream_host":"10.0.0.2:8000"}
`, .25, 100, 20, "2 servers answered them"},
		{"a format", own, `{"t":"1700000000.250","u":{"in":7,"out":8},"c":200,"m":"POST","pages":5}
{"t":"1700000001.250","u":{"in":"70","out":"80"},"c":200,"m":"POST","pages":5}
`, 1, 70, 80, "all are different"},
	} {
		got, err := Read(strings.NewReader(x.text), Options{Format: Envoy, LogFormat: x.format, Most: 10, Speedup: 1})
		if err != nil || len(got.Requests) != 2 {
			t.Errorf("%s: %v %+v", x.name, err, got)
			continue
		}
		r := got.Requests[1]
		late := r.At.Seconds() - x.at
		if late > 1e-6 || late < -1e-6 || r.Prompt[0].Bytes != 4*x.input || r.Output != x.output {
			t.Errorf("%s: found %+v; expected %+v", x.name, r, x)
		}
		if all := strings.Join(got.Assumed, "\n"); !strings.Contains(all, x.assumed) {
			t.Errorf("%s: found %q; expected %q", x.name, all, x.assumed)
		}
	}
}

// Errors name the line, span or message, and what was expected.
func TestLogErrors(t *testing.T) {
	for _, x := range []struct{ format, log, text, want string }{
		{Envoy, "", `{"path":"/"}`, "line 1: no field is the request's time"},
		{Envoy, "", `{"start_time":"noon"}`, `found the time "noon"`},
		{Envoy, "", `plain text`, "expected a line of Envoy's access log as a JSON object"},
		{Envoy, "", `{"start_time":"2024-03-01T12:00:00Z","prompt_tokens":"many"}`, `found "many"`},
		{Envoy, "{", "", "expected Envoy's json_format"},
		{Envoy, `{"a": "%DURATION%"}`, "", "no field is %START_TIME%"},
		{OTLP, "", `{"resourceSpans":[{"scopeSpans":[{"spans":[{"startTimeUnixNano":"x"}]}]}]}`, "message 1"},
		{OTLP, "", `{"resourceSpans":[{"scopeSpans":[{"spans":[{"startTimeUnixNano":"1"}]}]}]}`, "none of its 1 spans"},
		{OTLP, "", `[]`, "expected an object with resourceSpans"},
		{OTLP, "", `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"a","spanId":"b","startTimeUnixNano":"1",` +
			`"attributes":[{"key":"gen_ai.usage.input_tokens","value":{"stringValue":"-4"}}]}]}]}]}`, "expected 1 to 16777216"},
	} {
		_, err := Read(strings.NewReader(x.text), Options{Format: x.format, LogFormat: x.log, Most: 10, Speedup: 1})
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s %s: found %v; expected %q", x.format, x.text, err, x.want)
		}
	}
}
