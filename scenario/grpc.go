package scenario

import (
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// workloadAPIs maps the APIs to the core's.
var workloadAPIs = map[API]workload.API{ChatAPI: workload.Chat, CompletionsAPI: workload.Completions,
	GRPCGenerateAPI: workload.Generate, GRPCEmbedAPI: workload.Embed, MessagesAPI: workload.Messages,
	ResponsesAPI: workload.Responses}

// grpc reports whether requests are calls of vLLM's gRPC service.
func (w *Workload) grpc() bool { return workloadAPIs[w.API].GRPC() }

// parseGRPC makes the built-in picker read gRPC calls.
const parseGRPC = "requestHandler: {parsers: [{pluginRef: " + parse.TypeVLLMGRPC + "}]}"

// builtInConfig returns the EndpointPickerConfig of a pool that has none: llm-d's default.
func (s *Scenario) builtInConfig() PickerConfig {
	c := PickerConfig{File: "llm-d's default picker configuration", Text: []byte(config.DefaultText)}
	if s.Workload.grpc() {
		c.Text = append(c.Text, parseGRPC+"\n"...)
	}
	return c
}

// checkGRPC checks what gRPC calls need, and sets HTTP/2 on their whole way.
func (s *checker) checkGRPC() {
	w := &s.Workload
	if !w.grpc() {
		return
	}
	with := func(path, found, expected string) {
		s.bad(path, fmt.Sprintf("%s with api: %s", found, w.API), expected)
	}
	http2 := func(path string, version *HTTPVersion) {
		if s.written(path) && *version != HTTP2 {
			with(path, string(*version), "http2, which gRPC needs")
		}
		*version = HTTP2
	}
	http2("workload.http", &w.HTTP)
	fields := []string{"bodyFields", "includeUsage", "loraAdapters", "conversations", "trace"}
	if w.API == GRPCEmbedAPI {
		fields = append(fields, "maxTokens", "outputTokens")
	}
	refuse := func(path string) {
		s.refuse(path, fields, fmt.Sprintf("given with api: %s", w.API), "nothing: its messages have no place for it")
	}
	refuse("workload")
	fields = append(fields, "priority")
	for i := range w.Classes {
		refuse(fmt.Sprintf("workload.classes[%d]", i))
	}
	for i := range s.Pools {
		p, at := &s.Pools[i], fmt.Sprintf("pools[%d].", i)
		http2(at+"upstream", &p.Upstream)
		if p.Flow == Held {
			with(at+"flow", "held", "plain: a held request is a body of two parts, and a call one message")
		}
		if p.Sidecar != NoSidecar {
			with(at+"sidecar", string(p.Sidecar), "none: it reads the JSON of chats and completions")
		}
		if p.EPP.BodyMode != FullDuplexStreamed || p.EPP.Responses() != ResponseFullDuplex {
			with(at+"epp.bodyMode", "another mode than FULL_DUPLEX_STREAMED",
				"FULL_DUPLEX_STREAMED for requests and responses: the picker needs the trailers at the end of a call")
		}
		if w.API == GRPCEmbedAPI && len(p.Endpoints) > 0 && p.ModelServer.Tokenizer == "" {
			with(at+"endpoints", "given", "modelServer.tokenizer beside them: the message has the tokens and no text")
		}
	}
}

// checkParsed checks that the picker reads the workload's gRPC calls.
func (s *checker) checkParsed(k *picker.Picker, path string) {
	w := &s.Workload
	if w.grpc() && k.ParserName(&picker.Request{Headers: header.Of(":path", workloadAPIs[w.API].Path())}) == "" {
		s.bad(path, fmt.Sprintf("none of its parsers reads api: %s", w.API), strings.TrimSpace(parseGRPC))
	}
}
