package scenario

import (
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// workloadAPIs are the core's names of the APIs.
var workloadAPIs = map[API]workload.API{ChatAPI: workload.Chat, CompletionsAPI: workload.Completions,
	GRPCGenerateAPI: workload.Generate, GRPCEmbedAPI: workload.Embed, MessagesAPI: workload.Messages,
	ResponsesAPI: workload.Responses}

// grpc says whether requests are calls of vLLM's gRPC service.
func (w *Workload) grpc() bool { return workloadAPIs[w.API].GRPC() }

// parseGRPC has the built-in picker read calls by gRPC.
const parseGRPC = "requestHandler: {parsers: [{pluginRef: " + parse.TypeVLLMGRPC + "}]}"

// builtInConfig is the EndpointPickerConfig of a pool that has none.
func (s *Scenario) builtInConfig() PickerConfig {
	c := PickerConfig{File: "the built-in picker configuration", Text: []byte(config.RoundRobin)}
	if s.Workload.grpc() {
		c.Text = append(c.Text, parseGRPC+"\n"...)
	}
	return c
}

// checkGRPC tells what does not go together with calls by gRPC, and has them take
// HTTP/2 all the way.
func (s *Scenario) checkGRPC() Problems {
	w := &s.Workload
	if !w.grpc() {
		return nil
	}
	var out Problems
	with := func(path, found, expected string) {
		out = append(out, s.problem(path, fmt.Sprintf("%s with api: %s", found, w.API), expected))
	}
	http2 := func(path string, version *HTTPVersion) {
		if s.written(path) && *version != HTTP2 {
			with(path, string(*version), "http2, which gRPC is spoken over")
		}
		*version = HTTP2
	}
	http2("workload.http", &w.HTTP)
	fields := []string{"bodyFields", "includeUsage", "loraAdapters", "conversations", "trace"}
	if w.API == GRPCEmbedAPI {
		fields = append(fields, "maxTokens", "outputTokens")
	}
	for i := range w.Classes {
		for _, field := range append(slices.Clone(fields), "priority") {
			fields = append(fields, fmt.Sprintf("classes[%d].%s", i, field))
		}
	}
	for _, field := range fields {
		if s.written("workload." + field) {
			with("workload."+field, "given", "nothing: its messages have no place for it")
		}
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
				"FULL_DUPLEX_STREAMED for requests and responses: no other shows the picker the trailers that a call "+
					"ends with")
		}
		if w.API == GRPCEmbedAPI && len(p.Endpoints) > 0 && p.ModelServer.Tokenizer == "" {
			with(at+"endpoints", "given", "modelServer.tokenizer beside them: the message has the tokens and no text")
		}
	}
	return out
}

// checkParsed tells whether the picker reads the workload's calls by gRPC.
func (s *Scenario) checkParsed(k *picker.Picker, path string) Problems {
	w := &s.Workload
	if !w.grpc() || k.ParserName(&picker.Request{Headers: header.Of(":path", workloadAPIs[w.API].Path())}) != "" {
		return nil
	}
	return Problems{s.problem(path, fmt.Sprintf("none of its parsers reads api: %s", w.API),
		strings.TrimSpace(parseGRPC))}
}
